"""The measured ops of a calibration, by family and in the form that fits take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from placer.calibration.measuring.observation import OpObservation, StepObservation
from placer.pricing import Work, inputs_of, on_accelerator, op_label

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

#: Seconds by which recording may misplace the ends of an op, its cost known: what makes short ones uncertain.
TIMING_ERROR = 0.4e-6


@dataclass(frozen=True)
class MeasuredOp:
    """One op as it was measured, the spread of its step's repetitions, and the number of its step (``moment``)."""

    op: OpObservation
    spread: float
    moment: int


@dataclass(frozen=True)
class OpTimes:
    """Ops, their seconds, and variances of log(seconds) beyond what recording adds."""

    works: tuple[Work, ...]
    seconds: Array
    noise: Array


def ops_by_family(observations: Sequence[StepObservation]) -> dict[str, list[MeasuredOp]]:
    """All ops that were timed; those of an accelerator as its kernels see them."""
    found: dict[str, list[MeasuredOp]] = {}
    for moment, step in enumerate(observations):
        for op in step.ops:
            # An optimizer step divides evenly among equal tensors only: its own probes are its samples.
            if op.seconds and (op.family != "optimizer" or step.family == "optimizer"):
                seen = op if step.device == "cpu" else _on_accelerator(op)
                found.setdefault(op.family, []).append(MeasuredOp(seen, step.spread, moment))
    return found


def _on_accelerator(op: OpObservation) -> OpObservation:
    work = on_accelerator(op.work())
    features = (work.flops, work.bytes, *work.sizes, *work.flags)
    return replace(op, op=work.op, dtype=work.dtype, features=features)


def op_times(measured: Sequence[MeasuredOp]) -> OpTimes:
    """The times of these ops. A sample from a step that did not repeat itself says less."""
    return OpTimes(
        tuple(one.op.work() for one in measured),
        np.array([one.op.seconds for one in measured]),
        np.array([min(one.spread, 1.0) for one in measured]) ** 2,
    )


def timing_variance(seconds: Array) -> Array:
    """The variance that recording adds to log(seconds)."""
    return (TIMING_ERROR / seconds) ** 2


def regression_inputs(works: Sequence[Work], labels: Sequence[str]) -> tuple[Array, Indices]:
    """The inputs (n x d) of a residual, and indices of the ops among ``labels``."""
    index = {label: i for i, label in enumerate(labels)}
    return np.array([inputs_of(work) for work in works]), np.array([index[op_label(work)] for work in works])
