"""Runs one probe for real on one device, and returns what was observed."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from placer.calibration.benchmarks.probe import Probe
from placer.calibration.measuring.clocks import ClockWatch
from placer.calibration.measuring.device_timing import time_step_waiting
from placer.calibration.measuring.failures import KernelsLostError
from placer.calibration.measuring.health import synchronizer
from placer.calibration.measuring.in_place import time_step
from placer.calibration.measuring.kernel_recorder import UNSEEN, KernelRecorder
from placer.calibration.measuring.observation import StepObservation
from placer.calibration.measuring.observe import observe
from placer.calibration.measuring.recording_cost import recorder_cost
from placer.calibration.measuring.speed_probe import SpeedProbe
from placer.calibration.measuring.step import make_optimizer, probe_step
from placer.calibration.measuring.step_timing import RecorderCost, StepTiming
from placer.calibration.measuring.timing import Clock, run_for
from placer.pricing import describe_step
from placer.tracing import Trace, trace_here
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


@dataclass(eq=False)
class Bench:
    """Measures probes on one device at one number of threads.

    ``rates`` are the device's: on an accelerator they say what a launch and a wait take. With a ``speed_probe``, what
    was timed at another speed than the machine's usual one is left out. ``kernels``: whether the recorder sees the
    kernels of an accelerator; without it, its ops are timed by waiting. With ``clocks``, an accelerator that idled is
    warmed up first. ``lost`` counts the last probes in a row whose launches the recorder saw and whose kernels it did
    not.
    """

    device: str
    threads: int
    rates: Mapping[str, float] = field(default_factory=dict)
    clock: Clock = time.perf_counter
    speed_probe: SpeedProbe | None = None
    kernels: KernelRecorder = UNSEEN
    clocks: ClockWatch | None = None
    lost: int = 0

    def __post_init__(self) -> None:
        self.timer = RECORDER if self.device == "cpu" or self.kernels.sees else WAITING

    @cached_property
    def recorder(self) -> RecorderCost:
        """What recording a step's events adds on this device."""
        try:
            return recorder_cost(
                self.device, synchronize=synchronizer(self.device), clock=self.clock, speed_probe=self.speed_probe
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
        fused = make_optimizer(module, str(probe.optimizer), fused=True) if probe.fused else None
        workload = Workload(
            target=module, modules=(module,), args=args, kwargs={}, mode=probe.mode, loss=probe.loss,
            optimizer=fused or probe.optimizer, data="device",
        )  # fmt: skip
        traced = trace_here(workload).on(self.device)
        module.to(self.device)
        args = tuple(_moved(a, self.device) for a in args)
        step = probe_step(module, args, probe, self.clock)
        if self.clocks is not None:
            self.clocks.warm()
        run_for(step, WARM_UP, MOST_WARM_UP, self.clock)
        timing = self._time(step, traced, seconds)
        if timing is None or timing.matched < LEAST_MATCHED:
            return None
        return observe(
            traced, timing, device=self.device, threads=self.threads, family=probe.family, name=probe.name,
            recorder=self.recorder if self.timer == RECORDER else RecorderCost(0.0, 0.0),
            per_launch=self.kernels.per_launch,
        )  # fmt: skip

    def _time(self, step: Callable[[], object], traced: Trace, seconds: float) -> StepTiming | None:
        synchronize = synchronizer(self.device)
        if self.timer == RECORDER:
            try:
                timing = time_step(
                    step, traced, synchronize=synchronize, seconds=seconds, clock=self.clock,
                    speed_probe=self.speed_probe, ended=self.clocks.note if self.clocks is not None else None,
                )  # fmt: skip
            except KernelsLostError:
                self.lost += 1
                raise
            if synchronize is not None:
                self._check_kernels(timing, traced)
            return timing
        assert synchronize is not None
        overhead = self.rates.get("launch_seconds", 0.0) + self.rates.get("sync_seconds", 0.0)
        waited = time_step_waiting(
            step, traced, device=self.device, synchronize=synchronize, overhead=overhead, seconds=seconds,
            clock=self.clock,
        )  # fmt: skip
        if self.clocks is not None:
            self.clocks.note()
        return waited

    def _check_kernels(self, timing: StepTiming, traced: Trace) -> None:
        """Raise KernelsLostError where ops were issued that launch kernels, and the recorder reports none."""
        if any(op.device_seconds > 0.0 for op in timing.ops):
            self.lost = 0
        elif timing.ops and any(work.family != "view" for work in describe_step(traced)):
            self.lost += 1
            raise KernelsLostError("no kernel of this probe was reported")


def _moved(value: Any, device: str) -> Any:
    if isinstance(value, Tensor):
        return value.detach().to(device).requires_grad_(value.requires_grad)
    return value
