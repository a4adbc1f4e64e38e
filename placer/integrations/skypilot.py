"""SkyPilot: how long a task takes on each candidate of its optimizer, and what the instances of its catalog cost.

>>> estimate = estimator(model, (64, 84), mode="train", steps=100_000)
>>> task.set_resources({sky.Resources(cpus="4"), sky.Resources(accelerators="T4")})
>>> task.set_time_estimator(estimate)
>>> optimize(task, minimize="cost")

SkyPilot is imported by ``optimize`` alone. Of its catalog only the CSV files on this disk are read: nothing is fetched.
"""

from __future__ import annotations

import csv
import math
import re
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from placer.errors import PlacerError, PlacerWarning, UnknownGPU
from placer.fleets import Machine, cpu_class, rank, traced, work_of
from placer.profile import find_gpu
from placer.workload import Job, Workload, check_choice

#: Seconds that a candidate takes which cannot do the work: some thirty years. SkyPilot's optimizer fails on infinity.
NEVER = 1e9
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


def estimator(what: Callable[..., Any] | Workload | Job, batch: Any = None, **workload: Any) -> Callable[[Any], float]:
    """A function for ``Task.set_time_estimator``: from ``sky.Resources`` to the seconds that all of the work takes.

    The step is traced now, and priced once for each GPU and number of vCPUs. A candidate with a GPU runs on the GPU,
    driven by the CPU of its vCPUs, one without runs on the CPU. One GPU is priced where a candidate has several, as
    placer does not share out a model. What placer does not know, such as a TPU, and what the work does not fit on takes
    ``NEVER``. A warning says so, once.

    Args:
        what: a model or a step, with the arguments that ``placer.explain`` takes for it; a ``Workload``; or a ``Job``.
            It must say how much there is to do: ``steps=``, of a job ``repeats=``.

    Raises:
        ValueError, TypeError: a wrong argument, or no number of steps.
        TraceError: the step cannot be traced.
    """
    asked = work_of(what, batch, **workload)
    if isinstance(asked, Job) and asked.repeats is None:
        raise ValueError("how long will it take? Say how often the job runs: placer.Job(parts, repeats=10)")
    if isinstance(asked, Workload) and asked.steps is None:
        raise ValueError("how long will it take? Say how many steps there are: steps=100_000")
    work = traced(asked)

    @cache
    def warn_once(message: str) -> None:
        warnings.warn(PlacerWarning(message), stacklevel=3)

    @cache
    def priced(gpu: str, vcpus: float) -> float:
        name = gpu or f"{vcpus:g} vCPUs"
        try:
            devices = rank(work, [Machine(name, cpu_class(vcpus), gpu=gpu)]).rows[0].devices
        except PlacerError as error:
            warn_once(f"{name} takes NEVER: {error}")
            return NEVER
        cost = next((cost for device, cost in devices.items() if (device == "cpu") != bool(gpu)), None)
        if cost is None or cost.total_seconds is None or not cost.fits:
            warn_once(f"{name} takes NEVER: the work does not {'run there' if cost is None else 'fit its memory'}")
            return NEVER
        return cost.total_seconds

    def estimate(resources: Any) -> float:
        accelerator, count = next(iter((resources.accelerators or {}).items()), ("", 0))
        gpu = gpu_called(accelerator) if accelerator else ""
        if gpu is None:
            warn_once(f"placer knows no GPU {accelerator!r}: it takes NEVER; placer gpus lists those that it knows")
            return NEVER
        if gpu and count != 1:
            warn_once(f"{accelerator}:{count:g} is priced as one {accelerator}: placer does not share out a model")
        vcpus = re.match(r"\d+(\.\d+)?", str(resources.cpus or ""))  # "8", or "8+"
        return priced(gpu, float(vcpus[0]) if vcpus else DEFAULT_VCPUS)

    return estimate


def optimize(task: Any, *, minimize: str = "cost") -> Any:
    """Let SkyPilot's optimizer choose for a task with an estimator, and keep its choice: the ``sky.Resources``.

    The task then asks for these alone. Call it before ``sky.launch``: SkyPilot's server gets tasks as YAML, which
    holds no estimator. ``minimize`` is ``"cost"`` or ``"time"``. SkyPilot's own errors pass through.

    Raises ValueError where the task has no estimator, or ``minimize`` is neither.
    """
    import sky
    from sky.optimizer import Optimizer
    from sky.utils.common import OptimizeTarget

    check_choice("minimize", minimize, ("cost", "time"))
    if task.time_estimator_func is None:
        raise ValueError(
            "the task has no estimator: task.set_time_estimator(placer.integrations.skypilot.estimator(...))"
        )
    with sky.Dag() as dag:
        dag.add(task)
    Optimizer.optimize(dag, minimize=OptimizeTarget[minimize.upper()], quiet=True)
    best = task.best_resources
    task.set_resources(best)
    return best


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
            f"sky show-gpus --cloud {cloud.lower()}"
        )
    clouds = files if cloud is None else {cloud.lower(): files[cloud.lower()]}
    offers = [offer for name, path in clouds.items() for offer in _offers(name, path)]
    if region is not None:
        offers = [offer for offer in offers if offer.region.lower() == region.lower()]
        if not offers:
            raise PlacerError(f"SkyPilot's catalog has nothing in region {region!r} of {', '.join(clouds)}")
    cheapest: dict[tuple[str, float | None], Machine] = {}
    for offer in sorted(offers, key=lambda offer: offer.price):
        gpu = gpu_called(offer.gpu) if offer.gpu else ""
        if gpu is None or (gpu, offer.vcpus) in cheapest or not (gpu or offer.vcpus):
            continue
        cheapest[gpu, offer.vcpus] = Machine(
            offer.instance,
            cpu_class(offer.vcpus or DEFAULT_VCPUS, offer.memory_gb),
            gpu=gpu,
            price=offer.price,
            note=f"{offer.cloud} {offer.region}, price of {offer.date}",
            priced=offer.date,
        )
    return list(cheapest.values())


@dataclass(frozen=True)
class Offer:
    """An instance type in one region, with one GPU or none (by SkyPilot's name, "" for none).

    ``vcpus`` and ``memory_gb`` (GiB) are None where the catalog has none. ``price`` is in dollars per hour on demand,
    ``date`` the day on which the catalog was downloaded.
    """

    cloud: str
    instance: str
    region: str
    zone: str
    gpu: str
    vcpus: float | None
    memory_gb: float | None
    price: float
    date: str


@cache
def gpu_called(accelerator: str) -> str | None:
    """The name in placer's catalog of what SkyPilot calls ``accelerator``; None for what is not there, as for TPUs."""
    try:
        return find_gpu(_SAME.get(accelerator, accelerator)).name
    except UnknownGPU:
        return None


def _files() -> dict[str, Path]:
    """The newest file of each cloud, by the cloud's name."""
    folder = Path.home() / ".sky" / "catalogs"
    # The version of the format is the name of a folder: 8 of v8/aws/vms.csv.
    versions = {path: path.parts[-3][1:] for path in folder.glob("v*/*/vms.csv")}
    numbered = {path: int(number) for path, number in versions.items() if number.isdigit()}
    if not numbered:
        raise PlacerError(
            f"SkyPilot has no catalog in {folder}: install it (pip install skypilot) and "
            "download one with sky show-gpus --all, while there is a network"
        )
    newest = {path.parts[-2]: path for path in sorted(numbered, key=numbered.__getitem__)}
    return dict(sorted(newest.items()))


def _offers(cloud: str, path: Path) -> list[Offer]:
    """Every priced row of a file with one accelerator or none. Raises PlacerError."""
    date = time.strftime("%Y-%m-%d", time.localtime(path.stat().st_mtime))
    rows: list[Offer] = []
    try:
        with path.open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                price, count = _number(row["Price"]), _number(row["AcceleratorCount"])
                if price is not None and count in (None, 1.0):
                    rows.append(
                        Offer(
                            cloud,
                            row["InstanceType"],
                            row["Region"],
                            row.get("AvailabilityZone") or "",
                            row["AcceleratorName"] if count else "",
                            _number(row["vCPUs"]),
                            _number(row["MemoryGiB"]),
                            price,
                            date,
                        )
                    )
    except (OSError, KeyError, ValueError, csv.Error) as error:
        raise PlacerError(
            f"SkyPilot's catalog {path} cannot be read ({error}): delete it, and download it again with "
            f"sky show-gpus --cloud {cloud}"
        ) from None
    sold = [offer for offer in rows if offer.instance]
    if cloud == "gcp":  # its GPUs are priced apart: each with the hosts of its zone
        hosts = {(offer.instance, offer.zone): offer for offer in sold}
        for gpu in rows:
            if not gpu.instance:
                sold_with = (hosts.get((name, gpu.zone)) for name in _GOOGLE_HOSTS.get(gpu.gpu, ()))
                sold += [replace(host, gpu=gpu.gpu, price=host.price + gpu.price) for host in sold_with if host]
    family = _FAMILIES.get(cloud)
    return [offer for offer in sold if offer.gpu or family is None or family.match(offer.instance)]


def _number(text: str) -> float | None:
    """None for what is not said: an empty field, zero, or ``nan``. Raises ValueError for what is no number."""
    number = float(text or 0.0)
    return number if 0.0 < number < math.inf else None
