"""Fits the physical part of a family's cost: a latency, and what each FLOP, byte, step, ... takes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from placer.pricing import PER_CORE, Work, floor_amounts, op_label, peak

Array = NDArray[np.float64]

#: An op with fewer samples than this is priced with its family's costs.
LEAST_OWN = 3
#: Errors beyond this in log(seconds), a factor of 1.35, count linearly: one disturbed sample does not bend the fit.
SOFT = 0.3
#: Families whose FLOPs are counted, not estimated: none of their ops readings a matrix product's peak rate by much.
COUNTED = frozenset(("matmul", "convolution", "convolution_backward", "attention", "recurrent"))
#: How far above the measured peak an op's own arithmetic may seem to run (FLOPs saved by a fast algorithm, noise).
ABOVE_PEAK = 1.25
#: Standard deviations of log(cost) around what is expected beforehand: of a family's costs around the data-sheet rates
#: (amounts without such a rate are hardly held), of an op's costs around its family's.
FAMILY_SPREAD = {"latency": 1.5, "flops": 1.5, "bytes": 1.0}
#: What a FLOP of the largest shapes costs, in FLOPs of the peak rate, and how firmly that is held. What small shapes
#: waste is for the other amounts and the residual to tell, or it would be charged to large ones, which few show.
LARGE_FLOP = {"matmul": (1.15, 0.2), "convolution": (1.4, 0.3), "convolution_backward": (1.5, 0.3)}
UNKNOWN_SPREAD = 4.0
OP_SPREAD = 0.8


@dataclass(frozen=True)
class Prior:
    """What each log(cost) is expected to be, how firmly, and the least and the most it can be."""

    mean: Array
    spread: Array
    least: Array
    most: Array


def fit_floor(
    works: Sequence[Work], seconds: Array, rates: Mapping[str, float], *, threads: int = 1, cpu: bool = True,
    expected: Mapping[str, float] | None = None,
) -> dict[str, float]:  # fmt: skip
    """Positive costs for the family (``name``) and for each op sampled at least ``LEAST_OWN`` times (``name@op``).

    ``rates`` are the device's data-sheet rates, where a cost stays when samples say nothing about it: a family full of
    tiny shapes knows its latency, and must not invent its bandwidth. An op's costs stay near its family's likewise.
    ``threads``: among how many cores the device shares an op's loops; what one core does has a cost of its own then.
    ``cpu``: whether it is one. ``expected``: costs, by the same names, that another machine's samples make likely; they
    hold what the samples here say nothing about, and stand for ops that are sampled too rarely.
    """
    known = expected or {}
    rows = [floor_amounts(work, rates, threads=threads, cpu=cpu) for work in works]
    if threads == 1:
        rows = [{name: v for name, v in row.items() if not name.startswith(PER_CORE)} for row in rows]
    names = ("latency", *rows[0])
    matrix = np.array([[1.0, *row.values()] for row in rows])
    labels = np.array([op_label(work) for work in works])
    prior = _family_prior(names, matrix, seconds, works[0].family, rates, known)
    expected_flop = float(prior.mean[1])
    family = _fit(matrix, seconds, prior)
    result = {name: cost for name, cost in known.items() if "@" in name}
    result.update(zip(names, np.exp(family).tolist(), strict=True))
    for label in sorted(set(labels)):
        own = labels == label
        if own.sum() >= LEAST_OWN:
            work = works[int(np.flatnonzero(own)[0])]
            mean = family.copy()
            if work.family in LARGE_FLOP:
                mean[1] = expected_flop
            own_peak = peak(work, rates) if cpu else rates["flops/float32"]
            mean[1] += math.log(rates["flops/float32"] / own_peak)
            mean = np.array([_log_cost(known, f"{name}@{label}", log) for name, log in zip(names, mean, strict=True)])
            spread = np.full(len(names), OP_SPREAD)
            spread[1] = LARGE_FLOP.get(work.family, (0.0, OP_SPREAD))[1]
            costs = _fit(matrix[own], seconds[own], _bounded(mean, spread, work.family, own_peak))
            result.update({f"{name}@{label}": cost for name, cost in zip(names, np.exp(costs).tolist(), strict=True)})
    return result


def _log_cost(known: Mapping[str, float], name: str, otherwise: float) -> float:
    """Log of a cost of another machine, where it has one."""
    cost = known.get(name, 0.0)
    return math.log(cost) if cost > 0.0 else otherwise


def _family_prior(
    names: Sequence[str], matrix: Array, seconds: Array, family: str, rates: Mapping[str, float],
    known: Mapping[str, float],
) -> Prior:  # fmt: skip
    waste, held = LARGE_FLOP.get(family, (2.0, FAMILY_SPREAD["flops"]))
    expected = {
        "latency": 2.0 * rates["dispatch_seconds"],
        "flops": waste / rates["flops/float32"],
        "bytes": 1.0 / rates["bytes_per_second"],
    }
    mean, spread = [], []
    for name, column in zip(names, matrix.T, strict=True):
        some = column > 0.0
        # Without a rate of its own, an amount starts at a share of what it alone would have to cost.
        ratio = float(np.median(seconds[some] / column[some])) / len(names) if some.any() else 1e-12
        mean.append(_log_cost(known, name, math.log(expected.get(name, ratio))))
        hardly = OP_SPREAD if name in known else FAMILY_SPREAD.get(name, UNKNOWN_SPREAD)
        spread.append(held if name == "flops" else hardly)
    return _bounded(np.array(mean), np.array(spread), family, rates["flops/float32"])


def _bounded(mean: Array, spread: Array, family: str, peak: float) -> Prior:
    """A prior whose counted FLOP has bounds: the peak rate below, one standard deviation above what is expected of it.

    However many small, inefficient shapes are sampled, they do not slow down the large ones.
    """
    least, most = np.full(len(mean), -np.inf), np.full(len(mean), np.inf)
    if family in COUNTED:
        least[1] = -math.log(ABOVE_PEAK * peak)
    if family in LARGE_FLOP:
        most[1] = mean[1] + spread[1]
    return Prior(mean, spread, least, most)


def _fit(matrix: Array, seconds: Array, prior: Prior) -> Array:
    """Logs of the costs: robust least squares on log(seconds), each cost drawn towards its prior like one more sample.

    On relative errors instead, one sample measured far too short would outweigh all others and pull every cost to zero.
    """
    target = np.log(seconds)
    pull = np.diag(SOFT / prior.spread)

    def errors(logs: Array) -> Array:
        return np.concatenate([np.log(matrix @ np.exp(logs)) - target, pull @ (logs - prior.mean)])

    def slopes(logs: Array) -> Array:
        parts = matrix * np.exp(logs)
        return np.vstack([parts / parts.sum(1, keepdims=True), pull])

    start = np.maximum(prior.mean, prior.least + 1e-6)
    bounds = (np.maximum(prior.least, start - 30.0), np.minimum(prior.most, start + 30.0))
    found = least_squares(errors, start, jac=slopes, loss="soft_l1", f_scale=SOFT, bounds=bounds, max_nfev=80)
    return np.asarray(found.x)
