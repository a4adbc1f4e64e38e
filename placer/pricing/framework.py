"""The framework's own work in one step: Python between the ops, autograd's engine, the optimizer's loop.

It is counted here and priced by coefficients that calibration learns. What a function costs depends on its reuse
distance (see ``reuse_distance``): the larger that is, the further out its code is evicted, from one cache to the next
and to memory. So ops and functions are counted once as they are, and once weighted by their reuse distance.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence

from placer.pricing import kernels, parameter_updates
from placer.pricing.reuse_distance import CORE_CACHE, reuse_distances
from placer.tracing import OpCall, Trace, once_per_trace

#: Seconds of an op's own work after which the framework's code has left a core's own caches, and all caches; and
#: seconds of a step after which the update's code has left them. Orders of magnitude are enough.
NEAR, FAR, BEFORE_UPDATE = 50e-6, 2e-3, 5e-3
#: Reuse distances in seconds of ops. Up to the first all code is still in the nearest cache. From each to the next the
#: code leaves one more cache, evenly on a logarithmic scale.
DISTANCES = (4e-6, 50e-6, 600e-6, 8e-3)
#: Suffixes of the counts of code that has left one, two and three caches.
SCALES = ("50us", "600us", "8ms")
#: Reuse distance in ops of all phases from which on a step finds nothing left of what the interpreter, the branch
#: predictors and the allocator kept of it in the step before.
MANY_OPS = 100
#: Counts by phase. Phases are timed separately, so the cost of one cannot be taken for another's.
FORWARD = (
    "step", "forward_op", "op_reuse_distance_100_ops", "scalar_operand", "python_call", "call_reuse_distance_100_ops",
    "evicted_call", *(f"{what}_reuse_distance_{scale}" for what in ("op", "recorded_op", "call") for scale in SCALES),
)  # fmt: skip
BACKWARD = (
    "training_step", "backward_op", "autograd_node", "cold_node",
    *(f"backward_op_reuse_distance_{scale}" for scale in SCALES),
)  # fmt: skip
UPDATE = (
    "update", "updated_tensor", "cold_update", "update_reuse_distance", "update_kernel_reuse_distance",
    "update_op_reuse_distance", "evicted_update",
)  # fmt: skip
#: All counts that calibration learns a cost of.
LEARNT = (*FORWARD, *BACKWARD, *UPDATE)
#: Counts that only profiles of earlier versions have coefficients for. ``LONG_FORWARD`` weights forward ops by the
#: number of ops of the forward alone, up to ``LONG_FORWARD_OPS``.
LONG_FORWARD, LONG_FORWARD_OPS = ("op_reuse_distance_30_forward_ops", "call_reuse_distance_30_forward_ops"), 30
EARLIER = (*LONG_FORWARD, "cold_call", "long_op")

#: Seconds of what runs around compiled code (see ``compiled_host``), which calibration does not learn. Measured on one
#: CPU (docs/compiled.md): a call checks its guards and enters the compiled code, a training step goes through an
#: autograd function both ways, and the generated Python allocates results and calls kernels and libraries.
COMPILED: Mapping[str, float] = {
    "compiled_call": 28e-6, "compiled_training": 200e-6, "compiled_kernel": 1.5e-6, "compiled_library": 1.5e-6,
}  # fmt: skip


def framework_counts(trace: Trace, host_seconds: Sequence[float]) -> dict[str, float]:
    """How often the framework's own code runs in one step, by the names above.

    ``host_seconds`` are the seconds that each of ``trace.calls`` keeps the host. They set the reuse distances.

    - ``*_reuse_distance_<time>``: ops, and the Python functions around them, weighted by how far out their code is
      evicted (``distance_shares``). ``recorded``: ops whose graph autograd builds, which runs code of its own for each.
    - ``*_reuse_distance_100_ops``: forward ops and Python functions, weighted by the step's ops up to ``MANY_OPS``.
    - the loop around the step enters its functions (``Trace.loop_calls``) once a step, so their reuse distance is the
      whole step.
    - ``scalar_operand``: forward ops of a tensor and a Python number, which is made a tensor first.
    - ``evicted_call``: Python functions whose code other functions have evicted (``Trace.evicted_calls``).
    - ``cold_node``: autograd nodes, weighted by the share of their code that no core's own cache holds.
    - ``cold_update``, ``update_reuse_distance``: the update, weighted by the time of all ops before it.
      ``update_kernel_reuse_distance`` counts its kernels likewise, ``update_op_reuse_distance`` all its ops, and
      ``evicted_update`` the bytes it moves, in shares of a core's cache.
    """
    last, asked = _last_counts(trace), tuple(host_seconds)
    found = last.get(asked)
    if found is None:
        found = _counts(trace, asked)
        last.clear()  # another thread may do the same meanwhile
        last[asked] = found
    return dict(found)


@once_per_trace
def _last_counts(_: Trace) -> dict[tuple[float, ...], dict[str, float]]:
    """The counts that a trace was last asked for, by the host's seconds: all GPUs behind one host share them."""
    return {}


def _counts(trace: Trace, host_seconds: Sequence[float]) -> dict[str, float]:
    training = trace.mode == "train"
    shares = distance_shares([call.op for call in trace.calls], host_seconds)
    phases: dict[str, list[tuple[float, Sequence[float]]]] = defaultdict(list)
    for call, seconds, share in zip(trace.calls, host_seconds, shares, strict=True):
        phases["forward" if call.phase == "loss" else call.phase].append((seconds, share))
    forward, backward, updated = _Ops(phases["forward"]), _Ops(phases["backward"]), float(len(phases["optimizer"]))
    before = forward.seconds + backward.seconds
    updates = [call for call in trace.calls if parameter_updates.is_update(call)]
    kernels = [parameter_updates.kernels(call) for call in updates]
    walked = sum([parameter_updates.moved_bytes(call) for call in updates])
    update_distance = sum(_shares(before)) / len(SCALES) if updated else 0.0
    many = min(len(trace.calls) / MANY_OPS, 1.0)
    long_forward = min(forward.count / LONG_FORWARD_OPS, 1.0)
    cold = (forward.near + backward.near) / max(forward.count + backward.count, 1.0)
    calls_per_op = trace.python_calls / max(forward.count, 1.0)
    calls, loop = float(trace.python_calls + trace.loop_calls), _shares(before + sum(s for s, _ in phases["optimizer"]))
    call_distances = [
        calls_per_op * own + trace.loop_calls * whole for own, whole in zip(forward.distances, loop, strict=True)
    ]
    return {
        "step": 1.0,
        "forward_op": forward.count,
        "op_reuse_distance_100_ops": many * forward.count,
        "scalar_operand": float(sum(map(_has_scalar_operand, trace.calls))),
        "python_call": calls,
        "call_reuse_distance_100_ops": many * calls,
        "evicted_call": trace.evicted_calls,
        **_by_scale("op", forward.distances),
        **_by_scale("recorded_op", forward.distances, float(training)),
        **_by_scale("call", call_distances),
        "training_step": float(training),
        "backward_op": backward.count,
        "autograd_node": float(trace.autograd_nodes),
        "cold_node": cold * trace.autograd_nodes,
        **_by_scale("backward_op", backward.distances),
        "update": float(updated > 0.0),
        "updated_tensor": updated,
        "cold_update": min(before / BEFORE_UPDATE, 1.0) if updated else 0.0,
        "update_reuse_distance": update_distance,
        "update_kernel_reuse_distance": update_distance * max(kernels, default=0.0),
        "update_op_reuse_distance": update_distance * sum(kernels),
        "evicted_update": update_distance * min(walked / CORE_CACHE, 1.0),
        "op_reuse_distance_30_forward_ops": long_forward * forward.count,
        "call_reuse_distance_30_forward_ops": long_forward * trace.python_calls,
        "cold_call": cold * trace.python_calls,
        "long_op": forward.far + backward.far,
    }


def framework_seconds(counts: Mapping[str, float], coefficients: Mapping[str, float]) -> float:
    """Seconds of the framework's own work in one step: each of ``counts`` times its coefficient, added up."""
    return sum(coefficients.get(name, COMPILED.get(name, 0.0)) * count for name, count in counts.items())


def distance_shares(names: Sequence[str], seconds: Sequence[float]) -> list[tuple[float, ...]]:
    """For each op of a step, how much of its code has left each cache (0 to 1), from its reuse distance in seconds."""
    return [_shares(distance) for distance in reuse_distances(list(zip(names, seconds, strict=True)))]


def _shares(distance: float) -> tuple[float, ...]:
    """The same for one reuse distance in seconds."""
    if distance <= DISTANCES[0]:
        return _NEAREST
    reached = math.log(distance)
    return tuple([min(max((reached - least) / width, 0.0), 1.0) for least, width in _LOG_SCALES])


#: The shares of code that has left no cache.
_NEAREST = (0.0,) * len(SCALES)
#: Start and length of each cache's scale, in log(seconds); computed once, since every op of every priced step asks.
_LOG_SCALES = tuple((math.log(least), math.log(most / least)) for least, most in itertools.pairwise(DISTANCES))


class _Ops:
    """Sums over the ops of one phase, given the seconds of each and how much of its code has left each cache."""

    def __init__(self, found: Sequence[tuple[float, Sequence[float]]]) -> None:
        self.count = float(len(found))
        self.seconds = sum([seconds for seconds, _ in found])
        self.near = sum([min(seconds / NEAR, 1.0) for seconds, _ in found])
        self.far = sum([min(seconds / FAR, 1.0) for seconds, _ in found])
        self.distances = tuple(map(sum, zip(*(shares for _, shares in found), strict=True))) or _NEAREST


def _by_scale(what: str, shares: Sequence[float], factor: float = 1.0) -> dict[str, float]:
    return {f"{what}_reuse_distance_{scale}": factor * share for scale, share in zip(SCALES, shares, strict=True)}


def _has_scalar_operand(call: OpCall) -> bool:
    return call.phase in ("forward", "loss") and kernels.has_scalar_operand(call)
