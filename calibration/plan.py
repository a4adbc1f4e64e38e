"""Decides what to measure next: the time goes to the probes that add most to the fit."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

import numpy as np

from placer.calibration.benchmarks import PROPOSERS
from placer.calibration.benchmarks.probe import Accelerator, Limit, Probe, log_uniform
from placer.calibration.measuring.journal import StepObservation
from placer.pricing.physics import bounds
from placer.profile import Device

#: Share of the peak rates that a step of random ops reaches, roughly: it turns seconds into a limit on work.
EFFICIENCY = 0.3
#: Longest step of most probes: as a share of a device's time, since a dozen of them are timed, and in seconds; and of a
#: few, where the budget is long.
LONGEST_STEP, USUAL_LONGEST = 0.0012, 0.05
LONGEST_SHARE, LONGEST = 0.0003, 0.3
#: Share of probes whose steps may be as long as the budget allows at all.
LONG = 0.15
#: Share of a CPU's blocks that are made for shorter steps, and the least share of the longest step that these take;
#: every octave between is equally likely. In a step of a tenth of a millisecond code and operands stay in the nearest
#: caches, and an op costs a half or a fourth of what it costs between large ones. On an accelerator this matters less.
SHORT, SHORTEST = 0.5, 3e-3
#: Share of an accelerator's free memory that a step's forward may move: gradients and what they need come on top.
MEMORY_SHARE = 0.25
#: Most bytes that one branch of a block moves on an accelerator: two operands of 2^26 numbers and their result are more
#: than any cache holds, and most steps hold many such ops, not one that fills the memory.
MOST_OF_BRANCH = 1e9
#: Elements of the largest operands on an accelerator, what activations of large batches have; and bytes of its free
#: memory for each: operand, result, their gradients and what is kept between, with as much left over.
MOST_ELEMENTS, BYTES_PER_ELEMENT = 1 << 27, 64
#: Dtypes that an accelerator may have or not.
DTYPES = ("bfloat16", "float16", "float64")
#: Probes of a family that may fail in a row before it is drawn more and more rarely: the device may lack its ops.
PATIENCE = 4


@dataclass
class _Family:
    weight: float
    #: Logarithms of measured seconds over the roofline's, and their standard deviation; 1 while they are few.
    residuals: list[float] = field(default_factory=list)
    varies: float = 1.0
    spent: float = 0.0
    probes: int = 0
    failed: int = 0


class Planner:
    """Draws probes for one device, family by family, where the residual varies most per second spent."""

    def __init__(
        self,
        rates: Mapping[str, float],
        *,
        seed: int,
        seconds: float,
        memory: float | None = None,
        families: Sequence[str] | None = None,
    ) -> None:
        """``seconds`` that the device has. ``memory``: free bytes of an accelerator; None: a CPU.

        ``families``: what is drawn; None: of every family.
        """
        self.random = Random(seed)
        usual = min(LONGEST_STEP * seconds, USUAL_LONGEST)
        longest = max(min(LONGEST_SHARE * seconds, LONGEST), usual)
        reach = EFFICIENCY * usual
        limit = Limit(reach * rates["flops/float32"], reach * rates["bytes_per_second"])
        self.limit = _within(memory, limit, rates)
        self._stretched = _within(memory, limit.share(longest / usual), rates)
        self._short = SHORT if memory is None else 0.0
        self._roofline = Device("cpu" if memory is None else "accelerator", 1, rates, {}, {}, {})
        self._families = {name: _Family(PROPOSERS[name][1]) for name in families or PROPOSERS}

    def next(self) -> Probe:
        """The next probe: its family by need, its shapes at random within the longest step."""
        name = max(self._families, key=self._need)
        limit = self._stretched if self.random.random() < LONG else self.limit
        if self._short and name != "network" and self.random.random() < self._short:
            limit = limit.share(log_uniform(self.random, SHORTEST, 1.0))
        return PROPOSERS[name][0](self.random, limit)

    def learn(self, family: str, observation: StepObservation | None, seconds: float) -> None:
        """Take what a probe of ``family`` showed (None: it failed), and the ``seconds`` it took to measure."""
        state = self._families[family]
        state.probes += 1
        state.spent += seconds
        if observation is None:
            state.failed += 1
            return
        state.failed = 0
        for op in observation.ops:
            own = op.family in (family, "convolution_backward", "softmax", "fourier")
            if op.seconds and (own or family == "network"):
                state.residuals.append(math.log(op.seconds / bounds(op.work(), self._roofline).seconds))
        if len(state.residuals) > 3:
            state.varies = float(np.std(state.residuals))

    def _need(self, name: str) -> float:
        state = self._families[name]
        if state.probes < 2:
            return 1e6 * state.weight - state.probes
        # A failure is quick: counted by time alone, a family that cannot run here would be drawn for ever.
        hope = 0.5 ** max(state.failed - PATIENCE, 0)
        # Each family's error falls like 1 / sqrt(time): the next second is worth its weight over time spent.
        return hope * state.weight * (0.5 + min(state.varies, 1.5)) / state.spent


def _within(memory: float | None, limit: Limit, rates: Mapping[str, float]) -> Limit:
    """``limit`` as far as ``memory`` bytes have room for it; None: the CPU's, whose steps are small beside it."""
    if memory is None:
        return limit
    slower = {dtype: rates["flops/float32"] / rates[f"flops/{dtype}"] for dtype in DTYPES if f"flops/{dtype}" in rates}
    accelerator = Accelerator(slower, min(MOST_ELEMENTS, int(memory / BYTES_PER_ELEMENT)))
    return Limit(limit.flops, min(limit.bytes, MEMORY_SHARE * memory), MOST_OF_BRANCH, accelerator)


def too_few(observations: Sequence[StepObservation], least: int = 2) -> tuple[str, ...]:
    """Families with fewer than ``least`` measured probes: what a calibration lacked the time for."""
    counts = dict.fromkeys(PROPOSERS, 0)
    for step in observations:
        counts[step.family] = counts.get(step.family, 0) + 1
    return tuple(name for name, count in counts.items() if count < least)
