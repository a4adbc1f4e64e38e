"""The ops of a calibration's steps, as what is fitted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from placer.calibration.measuring.journal import OpObservation, StepObservation
from placer.pricing import on_accelerator

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
