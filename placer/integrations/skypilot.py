"""SkyPilot: the instances of its catalog and what they cost, for ``placer.fleet``.

Examples:
    >>> fleet = placer.fleet(model, (64, 84), steps=100_000, machines=machines("aws"), objective="cost")
    >>> task.set_resources([sky.Resources(instance_type=row.machine) for row in fleet.rows[:3]])

SkyPilot is not imported, and nothing is fetched: the CSV files of its catalog on this disk are read.
"""

from __future__ import annotations

import csv
import math
import re
import time
from dataclasses import dataclass, replace
from functools import cache
from operator import attrgetter
from pathlib import Path

from placer.errors import PlacerError
from placer.fleets import Machine, cpu_class
from placer.profile import catalog_name

#: vCPUs that SkyPilot picks where nobody says how many.
DEFAULT_VCPUS = 8
#: Families of CPU instances that SkyPilot picks from where a cloud sells many: no burstable ones, which run at a part
#: of their speed, and no Arm.
_FAMILIES = {
    "aws": re.compile(r"[mrc][67]i\."),
    "azure": re.compile(r"Standard_([DE]\d+s_v5|F\d+s_v2)$"),
    "gcp": re.compile(r"n2-(standard|highmem|highcpu)-"),
}
#: Google Cloud prices a GPU apart from its host. These are the hosts that one of them is sold with.
_N1 = ("n1-standard-4", "n1-standard-8")
_GOOGLE_HOSTS = {
    "A100": ("a2-highgpu-1g",), "A100-80GB": ("a2-ultragpu-1g",), "H100": ("a3-highgpu-1g",),
    "L4": ("g2-standard-4", "g2-standard-8", "g2-standard-16", "g2-standard-32"),
    "K80": _N1, "P4": _N1, "P100": _N1, "T4": _N1, "V100": _N1,
}  # fmt: skip
#: Names of SkyPilot that nobody else uses.
_SAME = {
    "GTX1660S": "GTX 1660 SUPER", "H100-MEGA": "H100", "H100-NVLINK": "H100",
    "RTX PRO Server 6000": "RTX PRO 6000 Blackwell Server Edition",
    "RTXPRO6000": "RTX PRO 6000 Blackwell Server Edition", "RTXPRO6000S": "RTX PRO 6000 Blackwell Server Edition",
    "RTXPRO6000WS": "RTX PRO 6000 Blackwell Workstation Edition",
}  # fmt: skip


def machines(cloud: str | None = None, region: str | None = None) -> list[Machine]:
    """The instance types of SkyPilot's catalog, for ``placer.fleet``; the cheapest first.

    One for each GPU and number of vCPUs: the cheapest of all clouds and regions, or of those that are named. Instances
    have one GPU that placer knows, or none; those without one are of the families that SkyPilot picks from.

    Raises PlacerError where there is no catalog on this disk, or no such cloud or region in it.
    """
    files = _files()
    if cloud is not None and cloud.lower() not in files:
        raise PlacerError(
            f"SkyPilot's catalog has no cloud {cloud!r}; it has: {', '.join(files)}; others are downloaded by: "
            f"sky gpus list --cloud {cloud.lower()}"
        )
    clouds = files if cloud is None else {cloud.lower(): files[cloud.lower()]}
    offers: list[Offer] = []
    for name, path in clouds.items():
        offers += _offers(name, path)
    if region is not None:
        offers = [offer for offer in offers if offer.region.lower() == region.lower()]
        if not offers:
            raise PlacerError(f"SkyPilot's catalog has nothing in region {region!r} of {', '.join(clouds)}")
    cheapest: dict[tuple[str, float | None], Machine] = {}
    for offer in sorted(offers, key=attrgetter("price")):
        gpu = gpu_called(offer.gpu)
        unknown = bool(offer.gpu) and not gpu
        if unknown or (gpu, offer.vcpus) in cheapest or not (gpu or offer.vcpus):
            continue
        date = time.strftime("%Y-%m-%d", time.localtime(clouds[offer.cloud].stat().st_mtime))
        cheapest[gpu, offer.vcpus] = Machine(
            offer.instance,
            cpu_class(offer.vcpus or DEFAULT_VCPUS, offer.memory_gb),
            gpu=gpu,
            price=offer.price,
            note=f"{offer.cloud} {offer.region}, price of {date}",
            priced=date,
        )
    return list(cheapest.values())


@dataclass(frozen=True)
class Offer:
    """An instance type in one region, with one GPU or none (by SkyPilot's name, "" for none).

    ``vcpus`` and ``memory_gb`` (GiB) are None where the catalog has none. ``price`` is in dollars per hour on demand.
    """

    cloud: str
    instance: str
    region: str
    zone: str
    gpu: str
    vcpus: float | None
    memory_gb: float | None
    price: float


@cache
def gpu_called(accelerator: str) -> str:
    """The name in placer's catalog of what SkyPilot calls ``accelerator``; "" for what is not there, as for TPUs."""
    return catalog_name(_SAME.get(accelerator, accelerator)) if accelerator else ""


def _files() -> dict[str, Path]:
    """The newest file of each cloud, by the cloud's name."""
    folder = Path.home() / ".sky" / "catalogs"
    # The version of the format is the name of a folder: 8 of v8/aws/vms.csv.
    versions = {path: path.parts[-3][1:] for path in folder.glob("v*/*/vms.csv")}
    numbered = {path: int(number) for path, number in versions.items() if number.isdigit()}
    if not numbered:
        raise PlacerError(
            f"SkyPilot has no catalog in {folder}: install it (pip install skypilot) and "
            "download one with sky gpus list --all, while there is a network"
        )
    newest = {path.parts[-2]: path for path in sorted(numbered, key=numbered.__getitem__)}
    return dict(sorted(newest.items()))


def _offers(cloud: str, path: Path) -> list[Offer]:
    """Every priced instance of a file with one accelerator or none, of the usual families. Raises PlacerError."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = [_offer(cloud, row) for row in csv.DictReader(file)]
    except (OSError, KeyError, ValueError, csv.Error) as error:
        raise PlacerError(
            f"SkyPilot's catalog {path} cannot be read ({error}): delete it, and download it again with "
            f"sky gpus list --cloud {cloud}"
        ) from None
    offers = [offer for offer in rows if offer is not None]
    sold = [offer for offer in offers if offer.instance]
    hosts = {(offer.instance, offer.zone): offer for offer in sold}
    for gpu in offers:
        if not gpu.instance:  # of Google, whose GPUs are priced apart: each with the hosts of its zone
            sold_with = (hosts.get((name, gpu.zone)) for name in _GOOGLE_HOSTS.get(gpu.gpu, ()))
            sold += [replace(host, gpu=gpu.gpu, price=host.price + gpu.price) for host in sold_with if host]
    family = _FAMILIES.get(cloud)
    return [offer for offer in sold if offer.gpu or family is None or family.match(offer.instance)]


def _offer(cloud: str, row: dict[str, str]) -> Offer | None:
    """A row of a file; None without a price, or with several accelerators. Raises KeyError, ValueError."""
    price, count = _number(row["Price"]), _number(row["AcceleratorCount"])
    if price is None or count not in (None, 1.0):
        return None
    return Offer(
        cloud,
        row["InstanceType"],
        row["Region"],
        row.get("AvailabilityZone") or "",
        row["AcceleratorName"] if count else "",
        _number(row["vCPUs"]),
        _number(row["MemoryGiB"]),
        price,
    )


def _number(text: str) -> float | None:
    """None for what is not said: an empty field, zero, or ``nan``. Raises ValueError for what is no number."""
    number = float(text or 0.0)
    return number if 0.0 < number < math.inf else None
