"""Runs one probe for real on one device, and returns what was observed."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import torch

from placer.calibration.benchmarks.probe import Probe, step_of
from placer.calibration.measuring.faults import (
    DEVICE_ERRORS,
    HungError,
    cause,
    check,
    release,
    synchronizer,
    time_limit,
)
from placer.calibration.measuring.in_place import time_step, time_step_waiting
from placer.calibration.measuring.journal import (
    HUNG,
    NO_NUMBER,
    NOT_MATCHED,
    TOO_LARGE,
    Failure,
    Journal,
    StepObservation,
)
from placer.calibration.measuring.recording import (
    UNSEEN,
    WARM,
    KernelRecorder,
    RecorderCost,
    keep_busy,
    recorder_cost,
)
from placer.calibration.measuring.step import Step, make_optimizer
from placer.calibration.measuring.step_timing import LEAST_SHARE, StepTiming, observe
from placer.calibration.measuring.timing import Clock, Timer, percentile, spread_of
from placer.errors import CalibrationError, PlacerError, TimerError, is_out_of_memory
from placer.pricing import describe_step
from placer.tracing import Trace, trace_here

#: Seconds of steps before anything is timed, at least one step. Allocator, kernel selection and optimizer state
#: settle, and cores that slept while the probe was built wake up: steps of the first 10 ms take 2 to 5 % longer than
#: later ones.
WARM_UP = 0.01
#: Steps of that warm-up at most, whatever the clock says.
MOST_WARM_UP = 1000
#: Steps before one is timed, and steps that are, where none of the ops in them is.
WHOLE_WARM_UP, WHOLE_STEPS = 3, 15
#: Share of the traced ops that must be found among the events; with fewer, the device ran other ops.
LEAST_MATCHED = 0.5
#: What an accelerator's ops are timed by: events of the recorder, or waiting for the device after every op.
RECORDER, WAITING = "recorder", "waiting"
#: Seconds of idling that do no harm to an accelerator's clock.
HARMLESS = 2e-3


@dataclass(eq=False)
class Bench:
    """Measures probes on one device at one number of threads.

    ``rates`` are the device's: on an accelerator they say what a launch and a wait take. ``kernels``: whether the
    recorder sees the kernels of an accelerator; without it, its ops are timed by waiting.
    """

    device: str
    threads: int
    rates: Mapping[str, float] = field(default_factory=dict)
    clock: Clock = time.perf_counter
    kernels: KernelRecorder = UNSEEN

    def __post_init__(self) -> None:
        self.timer = RECORDER if self.device == "cpu" or self.kernels.sees else WAITING
        self._synchronize = synchronizer(self.device)
        self._busy_until = self.clock()

    @cached_property
    def recorder(self) -> RecorderCost | None:
        """What recording a step's events adds on the CPU; None for an accelerator, which runs beside the recorder."""
        return recorder_cost(self.clock) if self._synchronize is None else None

    def measure(self, probe: Probe, *, seconds: float) -> StepObservation | None:
        """Time ``probe`` in about ``seconds`` beyond its set-up; None where the device ran other ops than were traced.

        Raises CalibrationError where the recorder lost its kernels, and whatever torch raises for a probe it cannot run
        (not implemented for a dtype, out of memory).
        """
        step, traced = self._prepared(probe)
        start = self.clock()
        for _ in range(MOST_WARM_UP):
            step()
            if self.clock() - start >= WARM_UP:
                break
        timing = (self._recorded if self.timer == RECORDER else self._waited)(step, traced, seconds)
        self._busy_until = self.clock()
        if timing is None or timing.matched < LEAST_MATCHED:
            return None
        return observe(traced, timing, probe, device=self.device, threads=self.threads, recorder=self.recorder)

    def measure_whole(self, probe: Probe) -> StepObservation:
        """Time whole steps of ``probe``, each from an idle device to an idle device, and none of the ops in them."""
        step, traced = self._prepared(probe)
        for _ in range(WHOLE_WARM_UP):
            step()
        timer = Timer(step, self._synchronize, self.clock)
        timer.wait()
        times = sorted(timer.seconds() for _ in range(WHOLE_STEPS))
        self._busy_until = self.clock()
        middle = percentile(times, 0.5)
        # Of each op that is no view a kernel: the recorder, once used, makes every launch longer.
        launched = sum(work.shape.launches(work) for work in describe_step(traced) if work.family != "view")
        seconds = max(middle - self.kernels.per_launch * launched, LEAST_SHARE * middle)
        timing = StepTiming(seconds, spread_of(times), recorded_seconds=0.0, events=0, ops=(), matched=0.0)
        return observe(traced, timing, probe, device=self.device, threads=self.threads)

    def _prepared(self, probe: Probe) -> tuple[Step, Trace]:
        """A step of ``probe`` on the device, and its trace; the device's clock is up."""
        # A GPU's probes are hundreds of times larger than a CPU's: a CPU would draw their numbers for seconds.
        with torch.device(self.device):
            module = probe.build()
            args = probe.example()
        module.train(probe.mode == "train")
        fused = make_optimizer(module, str(probe.optimizer), fused=True) if probe.fused else None
        workload = step_of(
            module, args, loss=probe.loss, optimizer=fused or probe.optimizer, trains=probe.mode == "train"
        )
        traced = trace_here(workload).on(self.device)
        optimizer = make_optimizer(module, probe.optimizer, fused=probe.fused) if probe.optimizer else None
        if self._synchronize is not None and self.clock is time.perf_counter:
            idle = self.clock() - self._busy_until
            if idle > HARMLESS:  # for as long as it idled: so this takes half of the time at most
                keep_busy(self.device, min(idle, WARM), self.clock)
        # As it was traced: its batch is on the device already, and nothing is copied out.
        return Step(workload, self.device, optimizer, clock=self.clock, copies_out=False), traced

    def _recorded(self, step: Step, traced: Trace, seconds: float) -> StepTiming:
        """Raises CalibrationError where ops were issued that launch kernels, and the recorder reports none."""
        timing = time_step(step, traced, synchronize=self._synchronize, seconds=seconds, clock=self.clock)
        launching = timing.ops and any(work.family != "view" for work in describe_step(traced))
        if self._synchronize is not None and launching and not timing.kernel_seconds:
            raise CalibrationError("the recorder saw its launches and not its kernels")
        return timing

    def _waited(self, step: Step, traced: Trace, seconds: float) -> StepTiming | None:
        assert self._synchronize is not None
        return time_step_waiting(
            step,
            traced,
            device=self.device,
            synchronize=self._synchronize,
            overhead=self.rates.get("launch_seconds", 0.0) + self.rates.get("sync_seconds", 0.0),
            seconds=seconds,
            clock=self.clock,
        )


#: Real seconds after which a probe is given up: a step takes milliseconds, the first kernels of a device some seconds.
HANG_SECONDS = 30.0


def attempt(
    bench: Bench, probe: Probe, *, seconds: float, journal: Journal, limit: float = HANG_SECONDS, whole: bool = False
) -> StepObservation | None:
    """Measure one probe in about ``seconds``, or (``whole``) a few steps of it; None where it teaches nothing here.

    Every such probe is a failure in the journal, with its reason. Raises TimerError: a clock that stands still would
    fail every other probe too, without ever spending the budget. Raises BrokenDeviceError where an accelerator runs
    nothing any more.
    """
    journal.starting(bench.device, bench.threads, probe.family, probe.name)
    observation = None
    reason = NOT_MATCHED
    try:
        with time_limit(limit, f"probe {probe.name} on {bench.device}"):
            observation = bench.measure_whole(probe) if whole else bench.measure(probe, seconds=seconds)
    except TimerError:
        raise
    except HungError:
        reason = HUNG
    except (*DEVICE_ERRORS, PlacerError) as error:
        out_of_memory = isinstance(error, (MemoryError, RuntimeError)) and is_out_of_memory(error)
        reason = TOO_LARGE if out_of_memory else cause(error)
    if observation is not None:
        if observation.is_finite():
            return observation
        reason = NO_NUMBER
    # Outside of the except clause: until it is left, the error's traceback holds the tensors.
    journal.add_failure(Failure(bench.device, bench.threads, probe.family, probe.name, reason))
    if reason in (HUNG, TOO_LARGE) or bench.device != "cpu":
        release(bench.device)
    if bench.device != "cpu":
        check(bench.device)
    return None
