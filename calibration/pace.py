"""Brings what was measured while a machine changed its pace to one pace.

A virtual machine is faster or slower for minutes or for half hours, as its neighbours are; all of its ops together.
What a sitting says about an op is then mixed with when it was measured. Where enough is known to price every op, the
ops around a step tell the pace of its moment.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from placer.calibration.observation import StepObservation
from placer.costs import CostModel

#: Steps whose ops tell the pace of a moment: some fifteen seconds of a calibration.
WINDOW = 150
#: Seconds below which an op is mostly dispatch, and tells little but how often it ran.
TELLING = 8e-6


def steadied(steps: Sequence[StepObservation], model: CostModel) -> list[StepObservation]:
    """``steps``, in the order they were taken, with all their times at the pace that ``model`` prices at.

    A step stays as it is where nothing around it tells the pace.
    """
    told = [_log_ratios(step, model) for step in steps]
    found = []
    for i, step in enumerate(steps):
        start = max(min(i - WINDOW // 2, len(steps) - WINDOW), 0)
        around = np.concatenate(told[start : start + WINDOW])
        found.append(_scaled(step, math.exp(float(np.median(around)))) if len(around) else step)
    return found


def _log_ratios(step: StepObservation, model: CostModel) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Logs of price over time, of the ops that tell."""
    ops = [op for op in step.ops if op.seconds is not None and op.seconds > 0.0 and op.family in model.fit.families]
    prices = np.array(model.price_works([op.work() for op in ops])[0])
    times = np.array([op.seconds for op in ops], dtype=np.float64)
    return np.log(prices[prices > TELLING] / times[prices > TELLING])


def _scaled(step: StepObservation, factor: float) -> StepObservation:
    ops = (
        replace(op, seconds=None if op.seconds is None else op.seconds * factor, host_seconds=op.host_seconds * factor)
        for op in step.ops
    )
    return replace(
        step, seconds=step.seconds * factor, update_seconds=step.update_seconds * factor, ops=tuple(ops)
    )  # fmt: skip
