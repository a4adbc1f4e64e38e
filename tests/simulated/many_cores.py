"""A CPU of many cores that is not there: what a step takes on it follows from a model, and its time is a clock's.

Calibration plans, fits and saves as on a real machine; only what ``Bench`` measures and the rates are the model's. It
is no model that pricing knows: an op takes a start, then arithmetic or traffic, whichever is longer, on as many cores
as it has pieces for, and entering a loop on several cores takes the longer the more of them there are.
"""

from __future__ import annotations

import math
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch
from torch import nn

from placer import machine
from placer.calibration import probing
from placer.calibration.benchmarks.probe import Probe
from placer.calibration.measuring.bench import WARM_UP, Bench
from placer.calibration.measuring.journal import StepObservation
from placer.calibration.measuring.recording import RecorderCost
from placer.calibration.measuring.step_timing import OpTiming, StepTiming, observe
from placer.calibration.runner import calibrate
from placer.pricing import Work, describe_step
from placer.pricing.shapes.moves import Index
from placer.profile import Profile
from placer.tracing import Trace, trace_here
from placer.workload import Workload
from simulated.clock import VirtualClock

#: Seconds to start an op, and what a step takes per op beyond it; of a loop on several cores, and more for each of them
#: (8 to 14 us on 24 cores in PyTorch's operator benchmark); to build and to trace a probe.
START, AROUND, REGION, REGION_PER_CORE, BUILD = 1e-6, 3e-6, 1e-6, 0.45e-6, 0.2
#: FLOP/s and bytes/s of a core, the latter from its own caches, which hold so many bytes, and from memory; and bytes/s
#: of all cores that share the memory.
FLOPS, CACHED, CACHE, BYTES, CHANNELS = 8e10, 5e10, 1e6, 1.2e10, 1.2e11
#: Seconds to add a number atomically, as cores that share a table do.
ATOMIC = 5e-9
#: FLOPs and bytes of a piece that is worth a core.
PIECE_FLOPS, PIECE_BYTES = 1e6, 4e5
#: Ops that run on one core whatever their size.
SERIAL = frozenset({"view", "recurrent", "linear_algebra", "sorting", "fourier"})


@dataclass
class ManyCores:
    """A machine with so many cores. ``measured`` counts the probes by number of threads, with the time they took."""

    cores: int
    clock: VirtualClock = field(default_factory=VirtualClock)
    measured: dict[int, int] = field(default_factory=dict)
    spent: dict[int, float] = field(default_factory=dict)

    def op_seconds(self, work: Work, threads: int) -> float:
        """What an op takes with so many threads."""
        if work.family == "view":
            return START
        pieces = math.ceil(max(work.flops / PIECE_FLOPS, work.bytes / PIECE_BYTES, 1e-9))
        on = 1 if work.family in SERIAL else min(threads, pieces)
        rate = CACHED * on if work.bytes < CACHE * on else min(BYTES * on, CHANNELS)
        busy = max(work.flops / (FLOPS * on), work.bytes / rate)
        if on > 1 and work.suffix == "accumulate" and isinstance(work.shape, Index):
            busy += ATOMIC * work.shape.moved / on
        return START + busy + (REGION + REGION_PER_CORE * threads if on > 1 else 0.0)

    def step_seconds(self, trace: Trace, threads: int) -> float:
        """What a step takes."""
        return sum(AROUND + self.op_seconds(work, threads) for work in describe_step(trace))

    def rates(self, threads: int) -> dict[str, float]:
        """What a data sheet would say of it."""
        flops = FLOPS * threads
        return {
            "flops/float32": flops,
            "flops/float64": flops / 2,
            "flops/bfloat16": flops,
            "flops/float16": flops / 8,
            "bytes_per_second": min(BYTES * threads, CHANNELS),
            "dispatch_seconds": START,
            "region_seconds": REGION + REGION_PER_CORE * threads,
            "thread_seconds": 0.0,
        }

    def observation(self, probe: Probe, threads: int, seconds: float) -> StepObservation:
        """What a bench would have seen of a probe, in ``seconds`` beyond its set-up and warm-up."""
        module = probe.build().train(probe.mode == "train")
        example, mode = probe.example(), probe.mode
        step = Workload(module, (module,), example, mode=mode, loss=probe.loss, optimizer=probe.optimizer)
        trace = trace_here(step)
        ops, ends = [], {"forward": 0.0, "backward": 0.0, "update": 0.0}
        for call, work in zip(trace.calls, describe_step(trace), strict=True):
            took = self.op_seconds(work, threads)
            ops.append(OpTiming(call, took, 0, 0.0))
            ends[{"loss": "forward", "optimizer": "update"}.get(call.phase, call.phase)] += AROUND + took
        step = sum(ends.values())
        took = BUILD + max(WARM_UP, step) + max(seconds, 3 * step) + 5 * step  # and recorded
        self.clock.spend(took)
        self.measured[threads] = self.measured.get(threads, 0) + 1
        self.spent[threads] = self.spent.get(threads, 0.0) + took
        timing = StepTiming(step, 0.02, step, len(ops), tuple(ops), 1.0, phases=ends)
        free = RecorderCost(0.0, 0.0)
        return observe(trace, timing, probe, device="cpu", threads=threads, recorder=free)

    def calibrated(self, path: Path, patch: pytest.MonkeyPatch, budget: float = 60.0) -> Profile:
        """Calibrate it in ``budget`` seconds of its own clock."""

        def measure(bench: Bench, probe: Probe, *, seconds: float) -> StepObservation:
            return self.observation(probe, bench.threads, seconds)

        def measure_rates(device: str, *, seconds: float, clock: VirtualClock) -> dict[str, float]:
            clock.spend(seconds)
            return self.rates(self.threads)

        def running_with(threads: int) -> nullcontext[None]:
            self.threads = threads
            return nullcontext()

        facts = {
            **machine.fingerprint(),
            "cpu": f"a modelled CPU of {self.cores} cores",
            "cpu_version": "",
            "cpu_instructions": "AVX512",
            "cores": self.cores,
            "threads": self.cores,
            "accelerators": [],
        }
        patch.setattr(Bench, "measure", measure)
        patch.setattr(probing, "measure_rates", measure_rates)
        patch.setattr(probing, "running_with", running_with)
        patch.setattr(torch, "get_num_threads", lambda: self.cores)
        patch.setattr(machine, "fingerprint", lambda: facts)
        return calibrate(budget=budget, devices=("cpu",), path=path, progress=False, clock=self.clock)


def stack(width: int, layers: int) -> nn.Sequential:
    """Layers of one width: what is tiny or big is set by it and the batch."""
    return nn.Sequential(*(layer for _ in range(layers) for layer in (nn.Linear(width, width), nn.ReLU())))
