"""Zeus: the energy that real steps take, as the counters of the GPU and of the CPU packages measure it.

>>> energy = measure(step, device="cuda")
>>> placer.explain(model, (64, 84), objective="energy", watts={"cuda": energy.watts, "cpu": 40})

``zeus`` reads NVML or AMD SMI for GPUs, and RAPL for CPU packages and their memory, which Linux lets root alone read.
For some counters it starts a process that imports the main script anew: measure under ``if __name__ == "__main__":``.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from placer.errors import PlacerError, first_line
from placer.machine import current_device, split_device
from placer.placement import synchronize

#: Steps before the measured ones: the first calls choose algorithms and fill caches.
_WARM_UP = 3
_WINDOW = "placer"


@dataclass(frozen=True)
class Energy:
    """What steps took, measured.

    ``watts`` is the mean power. ``domains`` are the joules per step of each counter that was read: ``gpu 0``,
    ``cpu 0`` (a whole package with all that runs on it) and ``dram 0``; ``joules_per_step`` is their sum.
    """

    joules_per_step: float
    seconds_per_step: float
    watts: float
    domains: Mapping[str, float]
    steps: int


def available() -> str:
    """Why no energy can be measured here: zeus is missing, or no counter can be read; "" where one can."""
    counters = _counters()
    if isinstance(counters, str):
        return counters
    return "" if any(isinstance(found, int) for found in counters.values()) else "; ".join(map(str, counters.values()))


def measure(step: Callable[[], Any], *, device: str, steps: int | None = None, seconds: float = 5.0) -> Energy:
    """Run ``step`` many times, and measure what it takes of energy and time.

    Args:
        step: one step on ``device``, without arguments. It really runs: it trains what it trains.
        device: where it runs. On an accelerator its energy counts, and that of the CPU packages and their memory where
            RAPL can be read; on the CPU the latter alone.
        steps: how many to measure; None: as many as take ``seconds``. Counters advance some ten times a second, so a
            second is the least that tells anything.

    Raises:
        ValueError, TypeError: a wrong argument.
        PlacerError: ``not available: ...``, where the device has no counter that can be read, or none advanced.
    """
    _check(steps, seconds)
    kind, index = split_device(current_device(device) if device == "cuda" else device)
    if kind not in ("cpu", "cuda"):
        raise PlacerError(f"not available: zeus has no counter for {device!r}; it has for cpu and cuda")
    counters = _counters()
    why = counters if isinstance(counters, str) else counters["cpu" if kind == "cpu" else "gpu"]
    if isinstance(why, str):
        raise PlacerError(f"not available: {why}")
    if kind == "cuda" and index >= why:
        raise PlacerError(f"not available: zeus reads {why} GPU{'s' * (why > 1)} here, and {device} is none of them")
    from zeus.exception import ZeusBaseError
    from zeus.monitor import ZeusMonitor

    try:
        monitor = ZeusMonitor(gpu_indices=[] if kind == "cpu" else [index])
    except (ZeusBaseError, ImportError) as error:
        raise PlacerError(f"not available: {first_line(error)}") from error
    count = _warm(step, device, seconds) if steps is None else steps
    synchronize(device)
    monitor.begin_window(_WINDOW, sync_execution=False)
    for _ in range(count):
        step()
    synchronize(device)
    found = monitor.end_window(_WINDOW, sync_execution=False)
    domains = {
        f"{name} {number}": joules / count
        for name, values in (("gpu", found.gpu_energy), ("cpu", found.cpu_energy), ("dram", found.dram_energy))
        for number, joules in (values or {}).items()
    }
    joules = sum(domains.values())
    if not joules > 0.0:
        raise PlacerError(f"not available: no counter advanced in {found.time:.3g} s; measure for longer, seconds=5")
    return Energy(joules, found.time / count, joules * count / found.time, domains, count)


def _warm(step: Callable[[], Any], device: str, seconds: float) -> int:
    """Run a few steps; the number of them that take so many seconds."""
    for _ in range(_WARM_UP):
        step()
    synchronize(device)
    started = time.perf_counter()
    step()
    synchronize(device)
    return max(1, math.ceil(seconds / max(time.perf_counter() - started, 1e-9)))


def _counters() -> dict[str, int | str] | str:
    """How many GPUs and CPU packages zeus reads, or why none; of zeus itself, why it cannot be imported."""
    try:
        from zeus import device as devices
        from zeus.exception import ZeusBaseError
    except ImportError as error:
        return f"zeus cannot be imported ({error}): pip install zeus"
    found: dict[str, int | str] = {}
    for name, get, lacks in (
        ("gpu", devices.get_gpus, "no GPU whose energy can be read"),
        ("cpu", devices.get_cpus, "no CPU whose energy can be read"),
    ):
        try:
            found[name] = len(get()) or lacks
        except (ZeusBaseError, ImportError, OSError) as error:
            found[name] = f"{lacks} ({first_line(error)})"
    return found


def _check(steps: int | None, seconds: float) -> None:
    if steps is not None and (isinstance(steps, bool) or not isinstance(steps, int)):
        raise TypeError(f"steps must be a whole number, 1 or more, not {steps!r}")
    if steps is not None and steps < 1:
        raise ValueError(f"steps must be a whole number, 1 or more, not {steps!r}")
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
        raise TypeError(f"seconds must be a number above 0, not {seconds!r}")
    if not 0.0 < seconds < math.inf:
        raise ValueError(f"seconds must be a number above 0, not {seconds!r}")
