"""A point of a published account -> what placer predicts for its CPU and for its GPU."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

from placer.calibration.suite.accounts import Account, Host, Part, Point, Side
from placer.decision import Decision, decide
from placer.machine import LAST_THRESHOLD, HeapState
from placer.pricing import Prediction, Residence, gpu_profile, on_other_cpu, predict
from placer.profile import Profile, find_gpu, load
from placer.tracing import trace
from placer.workload import make_workload

#: The heap of a process that has run for a while, so that a table does not depend on what this one did before.
_HEAP = HeapState(LAST_THRESHOLD, 0)
#: Standard deviation of log(seconds) that a step on a CPU adds to the errors of its ops where nothing but its data
#: sheet is known; as for a GPU of which that holds.
_BY_DATA_SHEET = 0.25


@dataclass(frozen=True)
class Total:
    """Predicted seconds of all parts of a point on one side, and their 90 % interval; a ``Timed`` of a long run."""

    device: str
    threads: int
    step_seconds: float
    low: float
    high: float
    one_time_seconds: float = 0.0
    components: Mapping[str, float] = field(default_factory=dict)
    peak_memory_bytes: int = 0
    available_memory_bytes: int | None = None
    fits: bool = True
    bounded_by: str | None = None


@dataclass(frozen=True)
class PricedPoint:
    """A point of an account with what is predicted: ``ratio`` is the speed-up by the GPU, ``low`` to ``high`` 90 %."""

    account: Account
    point: Point
    hardware: str
    cpu: Total
    gpu: Total
    ratio: float
    low: float
    high: float
    decision: Decision


def price_point(account: Account, point: Point) -> PricedPoint:
    """Trace and price every part of a point. Raises PlacerError where a part cannot be traced or priced."""
    host = point.cpu or account.cpu
    sheet = find_gpu(point.gpu or account.gpu)
    hosts: dict[Side, Host] = {"cpu": host, "gpu": point.gpu_host or host}
    times: dict[Side, list[tuple[Part, Prediction]]] = {"cpu": [], "gpu": []}
    for part in point.parts:
        for side, prediction in _predictions(part, hosts, sheet.name).items():
            times[side].append((part, prediction))
    cpu, gpu = _total("cpu", hosts["cpu"], times["cpu"]), _total("cuda", hosts["gpu"], times["gpu"])
    spread = math.exp(0.5 * math.hypot(math.log(cpu.high / cpu.low), math.log(gpu.high / gpu.low)))
    ratio = cpu.step_seconds / gpu.step_seconds
    decision = decide({"cpu": cpu, "cuda": gpu}, None)
    hardware = f"{host.name}, {_short(sheet.name)}"
    return PricedPoint(account, point, hardware, cpu, gpu, ratio, ratio / spread, ratio * spread, decision)


@cache
def host_profile(host: Host) -> Profile:
    """The shipped profile that an account's CPU is scaled from, scaled."""
    measured = load(host.profile)
    speeds = host.speeds(measured.fit("cpu", host.cores).rates)
    scaled = on_other_cpu(measured, speeds, threads=host.cores)
    (fit,) = scaled.fits
    return replace(scaled, fits=(replace(fit, interval={**fit.interval, "base": _BY_DATA_SHEET}),))


@cache
def _gpu_profile(name: str, host: Host) -> Profile:
    return gpu_profile(name, host_profile(host))


def _predictions(part: Part, hosts: Mapping[Side, Host], gpu: str) -> dict[Side, Prediction]:
    """A prediction per side that counts this part; a part on the host is priced on the CPU of either side."""
    workload = make_workload(
        part.model(), example=part.example(), mode=part.mode, loss=part.loss,
        optimizer=part.optimizer if part.mode == "train" else None, data=part.data,
    )  # fmt: skip
    traced = trace(workload)
    found: dict[Side, Prediction] = {}
    for side in part.counted:
        host = hosts[side]
        profile = _gpu_profile(gpu, host) if side == "gpu" and not part.on_host else host_profile(host)
        (device,) = profile.devices()
        found[side] = predict(
            traced, profile, devices=(device,), threads=host.cores, data=part.data, heap=_HEAP,
            residence=Residence(here=False),
        )[device]  # fmt: skip
    return found


def _total(device: str, host: Host, parts: Sequence[tuple[Part, Prediction]]) -> Total:
    return Total(
        device, host.cores, sum(part.count * found.step_seconds for part, found in parts),
        sum(part.count * found.low for part, found in parts), sum(part.count * found.high for part, found in parts),
    )  # fmt: skip


def _short(gpu: str) -> str:
    """A GPU's name without its maker."""
    return gpu.removeprefix("NVIDIA ").removeprefix("GeForce ")
