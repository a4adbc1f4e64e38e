"""The ops of a calibration's steps, as what is fitted, and as what a profile keeps of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from placer.calibration.measuring.journal import OpObservation, StepObservation
from placer.pricing import inputs_of, on_accelerator, op_label
from placer.profile import Sample

Array = NDArray[np.float64]

#: Seconds by which recording may misplace the ends of an op, its cost known: what makes short ones uncertain.
TIMING_ERROR = 0.4e-6


@dataclass(frozen=True)
class MeasuredOp:
    """One op as it was measured, and the spread of its step's repetitions."""

    op: OpObservation
    spread: float

    def variance(self, expected: float) -> float:
        """Of log(seconds): what recording adds, and what a step that did not repeat itself says less.

        The shorter an op is ``expected`` to be, the less it says. By the seconds that it took, ops that seemed long
        would count more than those that seemed short, and all prices rise.
        """
        return (TIMING_ERROR / expected) ** 2 + min(self.spread, 1.0) ** 2


def ops_by_family(observations: Sequence[StepObservation]) -> dict[str, list[MeasuredOp]]:
    """All ops that were timed; those of an accelerator as its kernels see them."""
    found: dict[str, list[MeasuredOp]] = {}
    for step in observations:
        for op in step.ops:
            # An optimizer step divides evenly among equal tensors only: its own probes are its samples.
            if op.seconds and (op.family != "optimizer" or step.family == "optimizer"):
                seen = op if step.device == "cpu" else _on_accelerator(op)
                found.setdefault(op.family, []).append(MeasuredOp(seen, step.spread))
    return found


def _on_accelerator(op: OpObservation) -> OpObservation:
    work = on_accelerator(op.work())
    return replace(op, op=work.op, dtype=work.dtype, features=work.features)


def samples(observations: Sequence[StepObservation], *, most: int) -> list[Sample]:
    """The measured points worth keeping in a profile: at most ``most`` of each family, spread over their shapes."""
    by_family: dict[str, list[tuple[StepObservation, OpObservation]]] = {}
    for step in observations:
        for op in step.ops:
            if op.seconds:
                by_family.setdefault(op.family, []).append((step, op))
    kept = []
    for members in by_family.values():
        works = [op.work() for _, op in members]
        names = sorted({op_label(work) for work in works})
        index = np.array([names.index(op_label(work)) for work in works])
        for i in spread_out(np.array([inputs_of(work) for work in works]), index, most):
            step, op = members[i]
            assert op.seconds is not None
            kept.append(
                Sample(
                    step.device,
                    step.threads,
                    op.family,
                    op_label(op.work()),
                    op.features,
                    op.seconds,
                    0.0 if step.device == "cpu" else op.host_seconds,
                    op.spread,
                    op.count,
                )
            )
    return kept


def spread_out(x: Array, index: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """Indices of at most ``most`` points, each the farthest from those before it: every corner of the samples is kept.

    Greedy k-center (Gonzalez, 1985): within a factor of two of the best cover.
    """
    scaled = x / np.maximum(x.std(0), 1e-9)
    distance = np.full(len(x), np.inf)
    chosen = [0]
    while len(chosen) < min(most, len(x)):
        last = chosen[-1]
        step = ((scaled - scaled[last]) ** 2).sum(1) + 2.0 * (index != index[last])
        distance = np.minimum(distance, step)
        distance[last] = -1.0
        chosen.append(int(np.argmax(distance)))
    return np.array(chosen)
