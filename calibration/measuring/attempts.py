"""Measures one probe, and survives it: why one could not be measured is written down, and the run goes on."""

from __future__ import annotations

from placer.calibration.benchmarks.probe import Probe
from placer.calibration.measuring import failures
from placer.calibration.measuring.bench import Bench
from placer.calibration.measuring.health import DEVICE_ERRORS, cause, check, release
from placer.calibration.measuring.journal import Journal
from placer.calibration.measuring.observation import StepObservation
from placer.calibration.measuring.watchdog import HungError, time_limit
from placer.errors import PlacerError, TimerError, is_out_of_memory

#: Real seconds after which a probe is given up: a step takes milliseconds, the first kernels of a device some seconds.
HANG_SECONDS = 30.0


def attempt(
    bench: Bench, probe: Probe, *, seconds: float, journal: Journal, limit: float = HANG_SECONDS
) -> StepObservation | None:
    """Measure one probe in about ``seconds``; None where nothing can be learnt from it here.

    Every such probe is a failure in the journal, with its reason. Raises TimerError: a clock that stands still would
    fail every other probe too, without ever spending the budget. Raises BrokenDeviceError where an accelerator runs
    nothing any more.
    """
    journal.starting(bench.device, bench.threads, probe.family, probe.name)
    observation = None
    reason = failures.NOT_MATCHED
    try:
        with time_limit(limit, f"probe {probe.name} on {bench.device}"):
            observation = bench.measure(probe, seconds=seconds)
    except TimerError:
        raise
    except HungError:
        reason = failures.HUNG
    except failures.KernelsLostError:
        reason = failures.KERNELS_LOST
    except (*DEVICE_ERRORS, PlacerError) as error:
        out_of_memory = isinstance(error, (MemoryError, RuntimeError)) and is_out_of_memory(error)
        reason = failures.TOO_LARGE if out_of_memory else cause(error)
    if observation is not None:
        if observation.is_finite():
            return observation
        reason = failures.NO_NUMBER
    # Outside of the except clause: until it is left, the error's traceback holds the tensors.
    journal.add_failure(failures.Failure(bench.device, bench.threads, probe.family, probe.name, reason))
    if reason in (failures.HUNG, failures.TOO_LARGE) or bench.device != "cpu":
        release(bench.device)
    if bench.device != "cpu":
        check(bench.device)
    return None
