"""The physical floor of an op: the roofline, and above it the sum of what its FLOPs, bytes and other amounts cost.

The costs are fitted by ``placer.calibration.fitting.floors``. The roofline is that of Williams, Waterman & Patterson,
"Roofline: an insightful visual performance model", CACM 52(4), 2009.
"""

from __future__ import annotations

from collections.abc import Mapping

from placer.pricing.describe import amounts, ops_inside
from placer.pricing.families import FAMILIES, PER_CORE
from placer.pricing.on_accelerator import launches
from placer.pricing.op_labels import known_labels
from placer.pricing.precision import arithmetic
from placer.pricing.work import Work
from placer.profile import DeviceFit

#: FLOP/s relative to float32 that are assumed of a dtype that was never measured.
UNMEASURED_RATE = {"float64": 0.5, "bfloat16": 1.0, "float16": 1.0, "complex64": 0.25, "complex128": 0.125}
#: Amounts that are arithmetic, and those that are loops starting again.
_ARITHMETIC = ("flops", f"{PER_CORE}flops")
_LOOPS = frozenset(("restarts", "blocks", f"{PER_CORE}restarts", f"{PER_CORE}blocks"))
#: Parameters that a fit has where its residual leaves these amounts to the floor.
ARITHMETIC_BY_FLOOR, LOOPS_BY_FLOOR = "arithmetic_told", "loops_told"
#: Parameter of a fit whose residual is learnt over the published price of its GPU (``gpu.device_model``): the edition
#: of those prices.
PUBLISHED = "published"
#: The least share of an op's time that is left to the residual.
LEAST_SHARE = 0.05


def roofline_seconds(work: Work, fit: DeviceFit) -> float:
    """The least time that physics allows: dispatch, then arithmetic or memory traffic, whichever is longer."""
    dispatch, arithmetic_seconds, memory = roofline_parts(work, fit)
    return dispatch + max(arithmetic_seconds, memory)


def roofline_parts(work: Work, fit: DeviceFit) -> tuple[float, float, float]:
    """The least seconds of an op's dispatch, of its arithmetic and of its memory traffic."""
    rates, cpu = fit.rates, fit.device == "cpu"
    ops = ops_inside(work) if cpu else launches(work)
    return (
        ops * rates["dispatch_seconds"], work.flops / peak(work, rates, cpu=cpu), work.bytes / rates["bytes_per_second"]
    )  # fmt: skip


def floor_seconds(work: Work, fit: DeviceFit, parameters: Mapping[str, float]) -> float:
    """A latency, and a cost for each amount that the op's time is proportional to.

    The costs are the op's own where it was measured often enough (``name@op``), else its family's. In the latter case
    FLOPs in another dtype than float32 are scaled by the ratio of the two peak rates: on the CPU where they are slower,
    on an accelerator in any case (see ``floor_amounts``). The floor is never below a third of the roofline: no fit may
    promise the impossible.
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
    cpu = fit.device == "cpu"
    for name, amount in floor_amounts(work, fit.rates, threads=fit.threads, cpu=cpu).items():
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
    if cpu and not suffix and work.dtype != "float32":
        total += work.flops * max(1.0 / peak(work, fit.rates) - 1.0 / fit.rates["flops/float32"], 0.0)
    return max(total, roofline_seconds(work, fit) / 3.0), share


def floor_amounts(work: Work, rates: Mapping[str, float], *, threads: int = 1, cpu: bool = True) -> dict[str, float]:
    """The amounts that the floor is a sum over (see ``describe.amounts``), as fitting and pricing count them.

    Those of an accelerator count FLOPs by the time they take at the peak rate of what they run in, in FLOPs of float32.
    So one cost serves all dtypes, and float32 whether this process allows TF32 or not.
    """
    found = amounts(work, threads)
    if not cpu:
        found["flops"] *= rates["flops/float32"] / peak(work, rates, cpu=False)
    return found


def peak(work: Work, rates: Mapping[str, float], *, cpu: bool = True) -> float:
    """FLOP/s of what the op runs in, measured or assumed: its dtype on the CPU, see ``precision`` on an accelerator."""
    dtype = work.dtype if cpu else arithmetic(work)
    return rates.get(f"flops/{dtype}") or rates["flops/float32"] * UNMEASURED_RATE.get(dtype, 1.0)
