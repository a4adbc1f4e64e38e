"""Runs one probe for real on one device, and returns what was observed."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from placer.calibration.benchmarks.probe import Probe
from placer.calibration.measuring.clocks import ClockWatch
from placer.calibration.measuring.device_timing import time_step_waiting
from placer.calibration.measuring.failures import KernelsLostError
from placer.calibration.measuring.in_place import time_step
from placer.calibration.measuring.kernel_recorder import KernelRecorder
from placer.calibration.measuring.observation import StepObservation
from placer.calibration.measuring.observe import observe
from placer.calibration.measuring.recording_cost import recorder_cost
from placer.calibration.measuring.speed_probe import SpeedProbe
from placer.calibration.measuring.step import make_optimizer, probe_step
from placer.calibration.measuring.step_timing import RecorderCost, StepTiming
from placer.calibration.measuring.timing import Clock
from placer.calibration.measuring.waiting import synchronizer
from placer.machine import malloc
from placer.pricing import describe_step, fault_seconds
from placer.tracing import Trace, trace
from placer.workload import Workload

#: Seconds of steps before anything is timed, at least one step. Allocator, kernel selection and optimizer state
#: settle, and cores that slept while the probe was built wake up: steps of the first 10 ms take 2 to 5 % longer than
#: later ones.
WARM_UP = 0.01
#: Steps of that warm-up at most, whatever the clock says.
MOST_WARM_UP = 1000
#: Share of the traced ops that must be found among the events; with fewer, the device ran other ops.
LEAST_MATCHED = 0.5
#: What an accelerator's ops are timed by: events of the recorder, or waiting for the device after every op.
RECORDER, WAITING = "recorder", "waiting"
#: Probes in a row whose kernels the event recorder may lose before it is given up.
MOST_LOST = 5


class Bench:
    """Measures probes on one device at one number of threads.

    ``rates`` are the device's: on an accelerator they say what a launch and a wait take. With a ``speed_probe``, what
    was timed at another speed than the machine's usual one is left out. ``kernels``: whether the recorder sees the
    kernels of an accelerator; without it, its ops are timed by waiting. ``lost`` counts the last probes in a row whose
    launches it saw and whose kernels it did not. With ``clocks``, an accelerator that idled is warmed up first.
    """

    def __init__(
        self,
        device: str,
        threads: int,
        *,
        rates: Mapping[str, float] | None = None,
        clock: Clock = time.perf_counter,
        speed_probe: SpeedProbe | None = None,
        kernels: KernelRecorder | None = None,
        clocks: ClockWatch | None = None,
    ) -> None:
        self.device = device
        self.threads = threads
        self._rates = rates or {}
        self._clock = clock
        self._speed_probe = speed_probe
        self._clocks = clocks
        kernels = kernels or KernelRecorder(sees=False)
        self._per_launch = kernels.per_launch
        self.timer = RECORDER if device == "cpu" or kernels.sees else WAITING
        self.lost = 0

    @cached_property
    def recorder(self) -> RecorderCost:
        """What recording a step's events adds on this device."""
        try:
            return recorder_cost(
                self.device, synchronize=synchronizer(self.device), clock=self._clock, speed_probe=self._speed_probe
            )  # fmt: skip
        except KernelsLostError:
            self.lost = MOST_LOST  # it would fail every probe alike
            raise

    def measure(self, probe: Probe, *, seconds: float) -> StepObservation | None:
        """Time ``probe`` in about ``seconds`` beyond its set-up; None where the device ran other ops than were traced.

        Raises KernelsLostError, and whatever torch raises for a probe it cannot run (not implemented for a dtype, out
        of memory).
        """
        # A GPU's probes are hundreds of times larger than a CPU's: a CPU would draw their numbers for seconds.
        with torch.device(self.device):
            module = probe.build()
            args = probe.example()
        module.train(probe.mode == "train")
        workload = Workload(
            target=module,
            modules=(module,),
            args=args,
            kwargs={},
            mode=probe.mode,
            loss=probe.loss,
            optimizer=make_optimizer(module, str(probe.optimizer), fused=True) if probe.fused else probe.optimizer,
            data="device",
        )
        traced = trace(workload).on(self.device)
        module.to(self.device)
        args = tuple(_moved(a, self.device) for a in args)
        step = probe_step(module, args, probe, self._clock)
        if self._clocks is not None:
            self._clocks.warm()
        warm_up(step, self._clock)
        timing = self._time(step, traced, seconds)
        if timing is None or timing.matched < LEAST_MATCHED:
            return None
        return observe(
            traced, timing, device=self.device, threads=self.threads, family=probe.family, name=probe.name,
            recorder=self.recorder if self.timer == RECORDER else RecorderCost(0.0, 0.0),
            fresh_seconds=self._fresh(traced), per_launch=self._per_launch,
        )  # fmt: skip

    def _fresh(self, traced: Trace) -> dict[int, float]:
        """Seconds that calls of ``traced`` spend on fresh pages in this process, by call number."""
        return fault_seconds(traced, malloc.state(), self._rates) if self.device == "cpu" else {}

    def _time(self, step: Callable[[], object], traced: Trace, seconds: float) -> StepTiming | None:
        synchronize = synchronizer(self.device)
        if self.timer == RECORDER:
            try:
                timing = time_step(
                    step, traced, synchronize=synchronize, seconds=seconds, clock=self._clock,
                    speed_probe=self._speed_probe, ended=self._clocks.note if self._clocks is not None else None,
                )  # fmt: skip
            except KernelsLostError:
                self.lost += 1
                raise
            if synchronize is not None:
                self._check_kernels(timing, traced)
            return timing
        assert synchronize is not None
        overhead = self._rates.get("launch_seconds", 0.0) + self._rates.get("sync_seconds", 0.0)
        waited = time_step_waiting(
            step, traced, device=self.device, synchronize=synchronize, overhead=overhead, seconds=seconds,
            clock=self._clock,
        )  # fmt: skip
        if self._clocks is not None:
            self._clocks.note()
        return waited

    def give_up_recorder(self) -> None:
        """Time the ops of an accelerator by waiting from now on."""
        self.timer, self.lost = WAITING, 0

    def _check_kernels(self, timing: StepTiming, traced: Trace) -> None:
        """Raise KernelsLostError where ops were issued that launch kernels, and the recorder reports none."""
        if any(op.device_seconds > 0.0 for op in timing.ops):
            self.lost = 0
        elif timing.ops and any(work.family != "view" for work in describe_step(traced)):
            self.lost += 1
            raise KernelsLostError("no kernel of this probe was reported")


def warm_up(step: Callable[[], object], clock: Clock) -> None:
    """Run ``step`` for ``WARM_UP`` seconds of ``clock``, at least once."""
    start = clock()
    for _ in range(MOST_WARM_UP):
        step()
        if clock() - start >= WARM_UP:
            break


def _moved(value: Any, device: str) -> Any:
    if isinstance(value, Tensor):
        return value.detach().to(device).requires_grad_(value.requires_grad)
    return value
