"""Measures one probe, and survives it: what hangs or does not fit is written down, and the run goes on."""

from __future__ import annotations

import contextlib
import gc
from typing import Protocol

import torch

from placer.calibration.benchmarks.probe import Probe
from placer.calibration.measuring.failures import HUNG, TOO_LARGE, Failure
from placer.calibration.measuring.journal import Journal
from placer.calibration.measuring.observation import StepObservation
from placer.calibration.measuring.watchdog import HungError, time_limit
from placer.errors import PlacerError, TimerError

#: Real seconds after which a probe is given up: a step takes milliseconds, the first kernels of a device some seconds.
HANG_SECONDS = 30.0
#: How torch says on the CPU that memory is short; on accelerators it has a class of its own for that.
_SHORT_OF_MEMORY = ("allocate memory", "not enough memory", "out of memory")


class Measuring(Protocol):
    """What ``attempt`` needs of a ``Bench``."""

    device: str
    threads: int

    def measure(self, probe: Probe, *, seconds: float) -> StepObservation | None: ...


def attempt(
    bench: Measuring, probe: Probe, *, seconds: float, journal: Journal, limit: float = HANG_SECONDS
) -> StepObservation | None:
    """Measure one probe in about ``seconds``; None where nothing can be learnt from it here.

    A probe that hangs for ``limit`` seconds or does not fit in memory is a failure in the journal. One whose op does
    not exist for this dtype or device is not written down. Raises TimerError: a clock that stands still would fail
    every other probe too, without ever spending the budget.
    """
    journal.starting(bench.device, bench.threads, probe.family, probe.name)
    reason = ""
    observation = None
    try:
        with time_limit(limit, f"probe {probe.name} on {bench.device}"):
            observation = bench.measure(probe, seconds=seconds)
    except TimerError:
        raise
    except HungError:
        reason = HUNG
    except (MemoryError, PlacerError, RuntimeError, ValueError) as error:
        reason = TOO_LARGE if _short_of_memory(error) else ""
    if reason:
        # Outside of the except clause: until it is left, the error's traceback holds the tensors.
        _free(bench.device)
        journal.add_failure(Failure(bench.device, bench.threads, probe.family, probe.name, reason))
        return None
    return observation if observation is None or observation.is_finite() else None


def _short_of_memory(error: BaseException) -> bool:
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in _SHORT_OF_MEMORY)


def _free(device: str) -> None:
    """Release what the failed probe held: modules and graphs are reference cycles, and allocators keep free memory."""
    gc.collect()
    if device != "cpu":
        with contextlib.suppress(RuntimeError, AttributeError):
            torch.get_device_module(torch.device(device)).empty_cache()
