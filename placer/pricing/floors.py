"""The physical floor of an op: the roofline, and above it the sum of what its FLOPs, bytes and other amounts cost.

The costs are fitted by ``placer.calibration.fitting.floors``. The roofline is that of Williams, Waterman & Patterson,
"Roofline: an insightful visual performance model", CACM 52(4), 2009.
"""

from __future__ import annotations

from collections.abc import Mapping

from placer.pricing.describe import amounts, ops_inside
from placer.pricing.families import FAMILIES, PER_CORE
from placer.pricing.op_labels import known_labels
from placer.pricing.work import Work
from placer.profile import DeviceFit

#: FLOP/s relative to float32 that are assumed of a dtype that was never measured.
UNMEASURED_RATE = {"float64": 0.5, "bfloat16": 1.0, "float16": 1.0, "complex64": 0.25, "complex128": 0.125}
#: Amounts that are arithmetic, and those that are loops starting again.
_ARITHMETIC = ("flops", f"{PER_CORE}flops")
_LOOPS = frozenset(("restarts", "blocks", f"{PER_CORE}restarts", f"{PER_CORE}blocks"))
#: Parameters that a fit has where its residual leaves these amounts to the floor.
ARITHMETIC_BY_FLOOR, LOOPS_BY_FLOOR = "arithmetic_told", "loops_told"
#: The least share of an op's time that is left to the residual.
LEAST_SHARE = 0.05


def roofline_seconds(work: Work, fit: DeviceFit) -> float:
    """The least time that physics allows: dispatch, then arithmetic or memory traffic, whichever is longer."""
    rates = fit.rates
    return ops_inside(work) * rates["dispatch_seconds"] + max(
        work.flops / _peak(work, rates), work.bytes / rates["bytes_per_second"]
    )


def floor_seconds(work: Work, fit: DeviceFit, parameters: Mapping[str, float]) -> float:
    """A latency, and a cost for each amount that the op's time is proportional to.

    The costs are the op's own where it was measured often enough (``name@op``), else its family's. In the latter case
    an op in another dtype than float32 is scaled by the ratio of the two peak rates. The floor is never below a third
    of the roofline: no fit may promise the impossible.
    """
    return floor_parts(work, fit, parameters)[0]


def floor_parts(work: Work, fit: DeviceFit, parameters: Mapping[str, float]) -> tuple[float, float]:
    """(``floor_seconds``, the share of it that the family's residual applies to, from ``LEAST_SHARE`` to 1).

    The residual is what memory, caches and the framework's code add to an op, learnt from ops of like sizes. Evaluating
    a function of each element is left to the floor alone: the floor of a mish of 2^18 elements is off by 4 %; with the
    residual of ops that only move as much memory it would be off by a third. Starting short loops again is left to the
    floor too: that is instructions, and no cache makes them more.
    """
    suffix = next((f"@{label}" for label in known_labels(work) if f"latency@{label}" in parameters), "")
    total = parameters[f"latency{suffix}"]
    arithmetic = loops = 0.0
    for name, amount in amounts(work, fit.threads).items():
        part = parameters.get(f"{name}{suffix}", 0.0) * amount
        total += part
        if name in _ARITHMETIC:
            arithmetic += part
        elif name in _LOOPS:
            loops += part
    by_floor = loops if parameters.get(LOOPS_BY_FLOOR) else 0.0
    if parameters.get(ARITHMETIC_BY_FLOOR) and FAMILIES[work.family].evaluates(work):
        by_floor += arithmetic
    share = max(1.0 - by_floor / total, LEAST_SHARE) if by_floor > 0.0 else 1.0
    if not suffix and work.dtype != "float32":
        total += work.flops * max(1.0 / _peak(work, fit.rates) - 1.0 / fit.rates["flops/float32"], 0.0)
    return max(total, roofline_seconds(work, fit) / 3.0), share


def _peak(work: Work, rates: Mapping[str, float]) -> float:
    """FLOP/s of the op's dtype, measured or assumed."""
    return rates.get(f"flops/{work.dtype}") or rates["flops/float32"] * UNMEASURED_RATE.get(work.dtype, 1.0)
