"""A point of a published account -> what placer predicts for its CPU and for its GPU."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from placer.calibration.suite.accounts import Account, Host, Part, Point, Side
from placer.calibration.validation.elsewhere import priced_elsewhere
from placer.decision import Decision, Total, decide, total
from placer.pricing import Prediction, gpu_profile, on_other_cpu
from placer.profile import Profile, find_gpu, load
from placer.tracing import trace
from placer.workload import make_workload


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
    times: dict[Side, list[tuple[float, Prediction]]] = {"cpu": [], "gpu": []}
    for part in point.parts:
        for side, prediction in _predictions(part, hosts, sheet.name).items():
            times[side].append((part.count, prediction))
    cpu = total("cpu", hosts["cpu"].cores, times["cpu"])
    gpu = total("cuda", hosts["gpu"].cores, times["gpu"])
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
    return on_other_cpu(measured, speeds, threads=host.cores)


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
        found[side] = priced_elsewhere(traced, profile, profile.devices()[0], host.cores, part.data)
    return found


def _short(gpu: str) -> str:
    """A GPU's name without its maker."""
    return gpu.removeprefix("NVIDIA ").removeprefix("GeForce ")
