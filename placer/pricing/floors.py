"""The physical floor of an op: the roofline, and above it the sum of what its FLOPs, bytes and other amounts cost.

The costs are fitted by ``placer.calibration.fitting.floors``. The roofline is that of Williams, Waterman & Patterson,
"Roofline: an insightful visual performance model", CACM 52(4), 2009.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from placer import machine
from placer.pricing.describe import reuse_share
from placer.pricing.families import FAMILIES, Switch
from placer.pricing.framework import framework_seconds
from placer.pricing.ops import QUANTIZED
from placer.pricing.prediction import Bound, PricedTrace
from placer.pricing.shapes import CORE_CACHE, ITEM, PER_CORE, Loop, cut
from placer.pricing.work import Work, known_labels
from placer.profile import DeviceFit

#: What float32 products run in on tensor cores, and the suffix of its rate (``flops/tf32``).
TF32 = "tf32"
_HALVES = ("bfloat16", "float16")


def has_physics(work: Work) -> bool:
    """Whether it is known what an op does, so that its price is no guess: by the table of ops, or by its family."""
    return work.effort.kind != QUANTIZED if work.effort is not None else FAMILIES[work.family].described


def arithmetic(work: Work) -> str:
    """The dtype whose peak rate bounds an op on an accelerator: its own, or another that its kernels compute in.

    Depthwise convolutions have no matrices to multiply: they take neither tensor cores nor TF32.
    """
    dtype = work.dtype.partition("+")[0]
    family = FAMILIES[work.family]
    multiplies = family.multiplies and "depthwise" not in work.shape.variant
    if dtype in _HALVES and not multiplies:
        return "float32"
    if dtype == "float32" and multiplies and family.switch is not None and allows_tf32(family.switch):
        return TF32
    return dtype


def allows_tf32(switch: Switch) -> bool:
    """Whether this process lets CUDA multiply float32 in TF32."""
    return dict(zip(("matmul", "conv", "rnn"), machine.tf32(), strict=True))[switch]

#: FLOP/s relative to float32 that are assumed of a dtype that was never measured.
UNMEASURED_RATE = {"float64": 0.5, "bfloat16": 1.0, "float16": 1.0, "complex64": 0.25, "complex128": 0.125}
#: Amounts that are arithmetic, and those that are loops starting again.
_ARITHMETIC = ("flops", f"{PER_CORE}flops")
_LOOPS = ("restarts", "blocks", f"{PER_CORE}restarts", f"{PER_CORE}blocks")
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
    ops = work.shape.ops_inside if cpu else work.shape.launches(work)
    return (
        ops * rates["dispatch_seconds"], work.flops / peak(work, rates, cpu=cpu), work.bytes / rates["bytes_per_second"]
    )  # fmt: skip


#: Cycles of a core in which an op is started: so the seconds of a start tell how fast a core's cycles are.
STARTING = 2500.0
#: Bytes that a core reads and writes in a cycle where its own caches hold them.
CACHED = 24.0
#: Rate of a fit that has the seconds of a cycle, where they are known otherwise; ``/kind``: of one kind of op.
CYCLE = "cycle_seconds"


def table_seconds(work: Work, fit: DeviceFit) -> float:
    """What an op takes on a CPU by the table of ops: its start, then its cycles or its memory traffic.

    The roofline where the table does not have it.
    """
    effort, rates = work.effort, fit.rates
    if effort is None:
        return roofline_seconds(work, fit)
    start = rates["dispatch_seconds"]
    cores = cores_of(work, fit.threads) if effort.shared else 1.0
    cycle = rates.get(f"{CYCLE}/{effort.kind}") or rates.get(CYCLE) or start / STARTING
    computing = effort.cycles * cycle / cores
    moving = rates["bytes_per_second"]
    if work.place.footprint <= CORE_CACHE * fit.threads:
        moving = max(moving, fit.threads * CACHED / (rates.get(CYCLE) or start / STARTING))
    return start + max(computing, work.bytes / moving)


def cores_of(work: Work, threads: int) -> float:
    """Cores among which a loop over the op's operands is shared: no piece of it is smaller than torch's grain."""
    return float(min(max(threads, 1), cut(work.bytes / (2 * ITEM))))


def floor_seconds(work: Work, fit: DeviceFit, parameters: Mapping[str, float]) -> float:
    """A latency, and a cost for each amount that the op's time is proportional to.

    The costs are the op's own where it was measured often enough (``name@op``), else its family's. In the latter case
    FLOPs in another dtype than float32 are scaled by the ratio of the two peak rates: on the CPU where they are slower,
    on an accelerator in any case (see ``floor_amounts``). The floor is never below a third of the roofline: no fit may
    promise the impossible.
    """
    return floor_parts(work, fit, parameters)[0]


def evaluates(work: Work) -> bool:
    """Whether an op evaluates a polynomial or a table for each element, which takes longer than fetching it."""
    return work.family == "elementwise" and isinstance(work.shape, Loop) and work.shape.evaluates(work.flops)


def floor_parts(work: Work, fit: DeviceFit, parameters: Mapping[str, float]) -> tuple[float, float]:
    """(``floor_seconds``, the share of it that the family's residual applies to, from ``LEAST_SHARE`` to 1).

    The residual is what memory, caches and the framework's code add to an op, learnt from ops of like sizes. Evaluating
    a function of each element is left to the floor alone: the floor of a mish of 2^18 elements is off by 4 %; with the
    residual of ops that only move as much memory it would be off by a third. Starting short loops again is left to the
    floor too: that is instructions, and no cache makes them more.
    """
    costs, of_the_op = floor_costs(work, fit, parameters)
    total = sum(costs.values())
    cpu = fit.device == "cpu"
    loops = sum(cost for name, cost in costs.items() if name in _LOOPS)
    arithmetic = sum(cost for name, cost in costs.items() if name in _ARITHMETIC)
    by_floor = loops if parameters.get(LOOPS_BY_FLOOR) else 0.0
    if parameters.get(ARITHMETIC_BY_FLOOR) and evaluates(work):
        by_floor += arithmetic
    share = max(1.0 - by_floor / total, LEAST_SHARE) if by_floor > 0.0 else 1.0
    if cpu and not of_the_op and work.dtype != "float32":
        total += work.flops * max(1.0 / peak(work, fit.rates) - 1.0 / fit.rates["flops/float32"], 0.0)
    return max(total, roofline_seconds(work, fit) / 3.0), share


def floor_amounts(work: Work, rates: Mapping[str, float], *, threads: int = 1, cpu: bool = True) -> dict[str, float]:
    """The amounts that the floor is a sum over, as fitting and pricing count them.

    Those of an accelerator count FLOPs by the time they take at the peak rate of what they run in, in FLOPs of float32.
    So one cost serves all dtypes, and float32 whether this process allows TF32 or not. Those of a CPU are more: what
    becomes of caches and registers, and what each of ``threads`` does.
    """
    counted = work.shape.amounts(work, threads)
    if not cpu:
        flops = work.flops * rates["flops/float32"] / peak(work, rates, cpu=False)
        return {"flops": flops, "bytes": work.bytes, **{name: counted[name] for name in work.shape.ON_ACCELERATOR}}
    return {
        "flops": work.flops, "bytes": work.bytes, "evicted": work.place.evicted, "first": work.place.first,
        "reuse_distance": reuse_share(work.place.reuse_distance), **counted,
    }  # fmt: skip


def floor_costs(work: Work, fit: DeviceFit, parameters: Mapping[str, float]) -> tuple[dict[str, float], bool]:
    """(the seconds of each part of an op's floor, whether they are the op's own): its latency, and each amount's.

    A fit has costs for the amounts of today, or for those that the version of placer counted that made it.
    """
    cpu = fit.device == "cpu"
    suffix = next((f"@{label}" for label in known_labels(work) if f"latency@{label}" in parameters), "")
    amounts = floor_amounts(work, fit.rates, threads=fit.threads, cpu=cpu)
    if cpu:
        amounts |= work.shape.earlier_amounts(work, fit.threads)
    costs = {name: parameters.get(f"{name}{suffix}", 0.0) * amount for name, amount in amounts.items()}
    return {"latency": parameters[f"latency{suffix}"], **costs}, bool(suffix)


def start_share(work: Work, fit: DeviceFit) -> float:
    """Share of an op's floor that does not depend on how much it does: what the thread that starts it does alone."""
    family = fit.families.get(work.family)
    if family is None:
        start, arithmetic, memory = roofline_parts(work, fit)
        return start / (start + max(arithmetic, memory))
    costs, _ = floor_costs(work, fit, family.parameters)
    return costs["latency"] / sum(costs.values())


def peak(work: Work, rates: Mapping[str, float], *, cpu: bool = True) -> float:
    """FLOP/s of what the op runs in, measured or assumed: its dtype on the CPU, ``arithmetic`` on an accelerator."""
    dtype = work.dtype if cpu else arithmetic(work)
    return rates.get(f"flops/{dtype}") or rates["flops/float32"] * UNMEASURED_RATE.get(dtype, 1.0)

#: What a step's op time is made of, in the order it is shown. The parts add up to the component ``compute``.
COMPUTE_PARTS = ("arithmetic", "memory", "overhead", "optimizer")


def op_parts(work: Work, seconds: float, fit: DeviceFit) -> tuple[float, float, float]:
    """Seconds of an op by what they go into: starting it, its arithmetic, its memory traffic.

    They are split like the least times of these. Arithmetic and traffic overlap: only the longer of the two counts.
    """
    start, arithmetic, memory = roofline_parts(work, fit)
    longer = max(arithmetic, memory)
    rest = seconds * longer / (start + longer)
    return seconds - rest, rest if arithmetic >= memory else 0.0, rest if arithmetic < memory else 0.0


def compute_parts(priced: PricedTrace, fit: DeviceFit) -> dict[str, float]:
    """The seconds of a step's ops by ``COMPUTE_PARTS``: what they go into, the optimizer's apart."""
    rows = list(zip(priced.trace.calls, priced.works, priced.seconds, strict=True))
    by_limit = _by_limit(((work, seconds) for call, work, seconds in rows if call.phase != "optimizer"), fit)
    return {**by_limit, "optimizer": sum(seconds for call, _, seconds in rows if call.phase == "optimizer")}


def step_bounds(priced: PricedTrace, components: Mapping[str, float], fit: DeviceFit) -> dict[Bound, float]:
    """The seconds of a step by what bounds them; they add up to the step.

    An accelerator runs behind its host. Where the host needs longer to issue the ops than the device to run them,
    faster kernels would save nothing: all that is not copied or waited for is bounded by launches.
    """
    bounds: dict[Bound, float] = {
        "launches": components.get("dispatch", 0.0), "transfer": components.get("copy", 0.0), "arithmetic": 0.0,
        "memory": 0.0, "waits": components.get("sync", 0.0) + components.get("others", 0.0),
        "loader": components.get("loading", 0.0),
    }  # fmt: skip
    device = sum(priced.seconds)
    host = sum(priced.host_seconds) + framework_seconds(priced.counts, fit.framework)
    if priced.device != "cpu" and host > device:
        bounds["launches"] += device
        return bounds
    limits = _by_limit(zip(priced.works, priced.seconds, strict=True), fit)
    bounds["launches"] += limits["overhead"]
    bounds["arithmetic"] += limits["arithmetic"]
    bounds["memory"] += limits["memory"]
    return bounds


def _by_limit(rows: Iterable[tuple[Work, float]], fit: DeviceFit) -> dict[str, float]:
    sums = {"arithmetic": 0.0, "memory": 0.0, "overhead": 0.0}
    parts: dict[int, tuple[float, float, float]] = {}
    for work, seconds in rows:
        if id(work) not in parts:
            parts[id(work)] = op_parts(work, 1.0, fit)
        for name, share in zip(("overhead", "arithmetic", "memory"), parts[id(work)], strict=True):
            sums[name] += seconds * share
    return sums
