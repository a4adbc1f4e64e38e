"""SkyPilot's catalog on this disk: the instance types that clouds sell, and their hourly prices on demand.

Only the CSV files are read, which SkyPilot downloads: SkyPilot itself is not imported, and nothing is sent or fetched.
"""

from __future__ import annotations

import csv
import math
import os
import re
import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from placer.errors import PlacerError, UnknownGPU
from placer.profile import find_gpu

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
    "RTXPRO6000S": "RTX PRO 6000 Blackwell Server Edition",
    "RTXPRO6000WS": "RTX PRO 6000 Blackwell Workstation Edition",
}  # fmt: skip


@dataclass(frozen=True)
class Offer:
    """An instance type in the region where it costs the least.

    ``gpu`` is SkyPilot's name of the accelerator, "" for none, and ``count`` how many there are. ``vcpus`` and
    ``memory_gb`` (GiB) are None where the catalog has none. ``price`` is in dollars per hour on demand, ``date`` the
    day on which the catalog was downloaded.
    """

    cloud: str
    instance: str
    region: str
    gpu: str
    count: float
    vcpus: float | None
    memory_gb: float | None
    price: float
    date: str


def offers(cloud: str | None = None, region: str | None = None) -> tuple[Offer, ...]:
    """What the clouds of the catalog sell, or one of them, or in one region, each instance type where it is cheapest.

    CPU instances are those of the families that SkyPilot picks from. Raises PlacerError where there is no catalog, no
    such cloud in it, or no such region.
    """
    files = _files()
    if cloud is not None and cloud.lower() not in files:
        raise PlacerError(
            f"SkyPilot's catalog has no cloud {cloud!r}; it has: {', '.join(files)}; others are downloaded by: "
            f"sky show-gpus --cloud {cloud.lower()}"
        )
    wanted = files if cloud is None else {cloud.lower(): files[cloud.lower()]}
    rows = [row for name, path in wanted.items() for row in _rows(name, path, path.stat().st_mtime_ns)]
    if region is not None:
        rows = [row for row in rows if row.region.lower() == region.lower()]
        if not rows:
            raise PlacerError(f"SkyPilot's catalog has nothing in region {region!r} of {', '.join(wanted)}")
    return tuple(_cheapest(rows, lambda row: (row.cloud, row.instance, row.gpu)))


@cache
def gpu_called(accelerator: str) -> str | None:
    """The name in placer's catalog of what SkyPilot calls ``accelerator``; None for what is not there, as for TPUs."""
    try:
        return find_gpu(_SAME.get(accelerator, accelerator)).name
    except UnknownGPU:
        return None


def cheapest_of_kinds(found: Iterable[Offer]) -> list[Offer]:
    """Of the offers with the same GPU and as many vCPUs, the cheapest; in order of price."""
    kinds = _cheapest(found, lambda offer: (gpu_called(offer.gpu) if offer.gpu else "", offer.vcpus))
    return sorted(kinds, key=lambda offer: offer.price)


def _cheapest(found: Iterable[Offer], key: Callable[[Offer], Hashable]) -> list[Offer]:
    best: dict[Hashable, Offer] = {}
    for offer in found:
        kind = key(offer)
        if kind not in best or offer.price < best[kind].price:
            best[kind] = offer
    return list(best.values())


def _files() -> Mapping[str, Path]:
    """The newest file of each cloud, by the cloud's name; those in SKY_RUNTIME_DIR before those in the home folder."""
    own = os.environ.get("SKY_RUNTIME_DIR")
    folders = [root / ".sky" / "catalogs" for root in (Path.home(), *([Path(own)] if own else []))]
    found: dict[str, Path] = {}
    for folder in folders:
        paths = (path for path in folder.glob("v*/*/vms.csv") if _version(path) is not None)
        found |= {path.parts[-2]: path for path in sorted(paths, key=lambda path: _version(path) or 0)}
    if not found:
        raise PlacerError(
            f"SkyPilot has no catalog in {folders[-1]}: install it (pip install skypilot) and download one with "
            "sky show-gpus --all, while there is a network"
        )
    return dict(sorted(found.items()))


def _version(path: Path) -> int | None:
    """The version of a catalog's format, which is the name of its folder: 8 of ``v8/aws/vms.csv``."""
    number = path.parts[-3][1:]
    return int(number) if number.isdigit() else None


@cache
def _rows(cloud: str, path: Path, changed: int) -> tuple[Offer, ...]:
    """Every priced row of a file that changed last at this time (in nanoseconds). Raises PlacerError."""
    date = time.strftime("%Y-%m-%d", time.localtime(changed / 1e9))
    try:
        with path.open(encoding="utf-8", newline="") as file:
            read = ((_offer(cloud, row, date), row.get("AvailabilityZone") or "") for row in csv.DictReader(file))
            rows = [(offer, zone) for offer, zone in read if offer is not None]
    except (OSError, KeyError, ValueError, csv.Error) as error:
        raise PlacerError(
            f"SkyPilot's catalog {path} cannot be read ({error}): delete it, and download it again with "
            f"sky show-gpus --cloud {cloud}"
        ) from None
    if cloud == "gcp":
        rows += _with_google_hosts(rows)
    found = (offer for offer, _ in rows if offer.instance)
    family = _FAMILIES.get(cloud)
    return tuple(offer for offer in found if offer.gpu or family is None or family.match(offer.instance))


def _offer(cloud: str, row: Mapping[str, str], date: str) -> Offer | None:
    """One row; None for one without a price."""
    price = _number(row["Price"])
    if price is None:
        return None
    count = _number(row["AcceleratorCount"]) or 0.0
    return Offer(
        cloud=cloud, instance=row["InstanceType"], region=row["Region"], gpu=row["AcceleratorName"] if count else "",
        count=count, vcpus=_number(row["vCPUs"]), memory_gb=_number(row["MemoryGiB"]), price=price, date=date,
    )  # fmt: skip


def _number(text: str) -> float | None:
    """None for what is not said: an empty field, zero, or ``nan``. Raises ValueError for what is no number."""
    number = float(text or 0.0)
    return number if 0.0 < number < math.inf else None


def _with_google_hosts(rows: Sequence[tuple[Offer, str]]) -> list[tuple[Offer, str]]:
    """Google's GPUs, each with the hosts of its zone."""
    hosts = {(offer.instance, zone): offer for offer, zone in rows if offer.instance}
    alone = [(offer, zone) for offer, zone in rows if not offer.instance and offer.count == 1]
    return [
        (replace(host, gpu=gpu.gpu, count=1.0, price=host.price + gpu.price), zone)
        for gpu, zone in alone
        for name in _GOOGLE_HOSTS.get(gpu.gpu, ())
        if (host := hosts.get((name, zone))) is not None
    ]
