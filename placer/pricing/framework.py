"""The framework's own work in one step: Python between the ops, autograd's engine, the optimizer's loop.

It is counted here and priced by what calibration learnt that each of the counts costs. What a function costs depends on
how long ago it ran last: the further out its code has been pushed meanwhile, from one cache to the next and to memory,
the longer it takes to come back. So ops and functions are counted as they are, and again by how much was between.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence

from placer.pricing import layouts, parameter_updates
from placer.pricing.context import since_last
from placer.pricing.sharing import CORE_CACHE
from placer.tracing.trace import OpCall, Trace

#: Seconds of an op's own work after which the framework's code has left a core's own caches, and all caches: orders of
#: magnitude are enough. The update's code has waited for a whole step.
NEAR, FAR, SINCE_UPDATE = 50e-6, 2e-3, 5e-3
#: Seconds of ops since code ran last: up to the first of these all of it is still there. From one to the next it leaves
#: one more of the caches, as evenly on a logarithmic scale as one cache is larger than another.
SINCE = (4e-6, 50e-6, 600e-6, 8e-3)
#: What the counts of code that has left as many caches are called after.
AFTER = ("50us", "600us", "8ms")
#: Ops of a step, those of all phases, from which on the tensors and modules of one, what the interpreter keeps of the
#: functions around it, and what the core has learnt of their branches, are forgotten by the next step.
MANY = 100
#: What is counted of each phase of a step. Phases are timed apart, so what one of them costs cannot be taken for
#: another's.
FORWARD = (
    "step", "forward_op", "op_among_many", "number_operand", "python_call", "call_among_many", "displaced_call",
    *(f"{what}_after_{after}" for what in ("op", "recorded_op", "call") for after in AFTER),
)  # fmt: skip
BACKWARD = (
    "training_step", "backward_op", "autograd_node", "cold_node", *(f"backward_op_after_{after}" for after in AFTER)
)  # fmt: skip
UPDATE = (
    "update", "updated_tensor", "cold_update", "stale_update", "stale_kernel", "stale_update_op", "displaced_update"
)  # fmt: skip
#: All that calibration learns the cost of.
LEARNT = (*FORWARD, *BACKWARD, *UPDATE)
#: Counted for profiles that were fitted before: nothing new is learnt of these. ``CROWDED`` is what forward was counted
#: by when ops among many were told by forward's own number.
CROWDED, CROWD = ("crowded_op", "crowded_call"), 30
EARLIER = (*CROWDED, "cold_call", "long_op")


def framework_counts(trace: Trace, host_seconds: Sequence[float]) -> dict[str, float]:
    """How often the framework's own code runs in one step; calibration learns what each costs.

    ``host_seconds`` are what each of ``trace.calls`` keeps the host: the longer, the further out its caches have pushed
    the framework's code meanwhile.

    - ``*_among_many``: forward ops and Python functions that the other ops of the step make forgotten, in shares;
      ``number_operand``: forward ops of a tensor and a number of Python's, which becomes a tensor before they begin;
      ``displaced_call``: functions whose code other functions displace.
    - ``*_after_*``: ops, and the Python functions around them, that ran so long ago, in shares (see ``staleness``);
      ``recorded``: while autograd builds its graph, which runs code of its own for each kind of op.
    - ``cold_node``: autograd nodes that have to come back from beyond a core's own caches, in shares.
    - ``cold_update``, ``stale_update``: the update after all the ops before it; ``stale_kernel``: the code of each of
      its kernels, ``stale_update_op``: all that run, ``displaced_update``: what they walk over, in shares of a cache.
    """
    training = trace.mode == "train"
    shares = staleness([call.op for call in trace.calls], host_seconds)
    phases: dict[str, list[tuple[float, Sequence[float]]]] = defaultdict(list)
    for call, seconds, share in zip(trace.calls, host_seconds, shares, strict=True):
        phases["forward" if call.phase == "loss" else call.phase].append((seconds, share))
    forward, backward, updated = _Ops(phases["forward"]), _Ops(phases["backward"]), float(len(phases["optimizer"]))
    before = forward.seconds + backward.seconds
    updates = [call for call in trace.calls if parameter_updates.is_update(call)]
    kernels = [parameter_updates.kernels(call) for call in updates]
    walked = sum([parameter_updates.moved_bytes(call) for call in updates])
    stale_update = sum(_stale(before)) / len(AFTER) if updated else 0.0
    many = min(len(trace.calls) / MANY, 1.0)
    crowd = min(forward.count / CROWD, 1.0)
    cold = (forward.near + backward.near) / max(forward.count + backward.count, 1.0)
    calls_per_op = trace.python_calls / max(forward.count, 1.0)
    return {
        "step": 1.0,
        "forward_op": forward.count,
        "op_among_many": many * forward.count,
        "number_operand": float(sum(map(_is_forward_of_number, trace.calls))),
        "python_call": float(trace.python_calls),
        "call_among_many": many * trace.python_calls,
        "displaced_call": trace.displaced_calls,
        **_after("op", forward.stale),
        **_after("recorded_op", forward.stale, float(training)),
        **_after("call", forward.stale, calls_per_op),
        "training_step": float(training),
        "backward_op": backward.count,
        "autograd_node": float(trace.autograd_nodes),
        "cold_node": cold * trace.autograd_nodes,
        **_after("backward_op", backward.stale),
        "update": float(updated > 0.0),
        "updated_tensor": updated,
        "cold_update": min(before / SINCE_UPDATE, 1.0) if updated else 0.0,
        "stale_update": stale_update,
        "stale_kernel": stale_update * max(kernels, default=0.0),
        "stale_update_op": stale_update * sum(kernels),
        "displaced_update": stale_update * min(walked / CORE_CACHE, 1.0),
        "crowded_op": crowd * forward.count,
        "crowded_call": crowd * trace.python_calls,
        "cold_call": cold * trace.python_calls,
        "long_op": forward.far + backward.far,
    }


def _is_forward_of_number(call: OpCall) -> bool:
    return call.phase in ("forward", "loss") and layouts.is_of_number(call)


class _Ops:
    """Sums over the ops of one phase, each with its seconds and how much of its code has left each of the caches."""

    def __init__(self, found: Sequence[tuple[float, Sequence[float]]]) -> None:
        self.count = float(len(found))
        self.seconds = sum([seconds for seconds, _ in found])
        self.near = sum([min(seconds / NEAR, 1.0) for seconds, _ in found])
        self.far = sum([min(seconds / FAR, 1.0) for seconds, _ in found])
        self.stale = tuple(map(sum, zip(*(shares for _, shares in found), strict=True))) or _FRESH


def _after(what: str, shares: Sequence[float], factor: float = 1.0) -> dict[str, float]:
    return {f"{what}_after_{after}": factor * share for after, share in zip(AFTER, shares, strict=True)}


def staleness(names: Sequence[str], seconds: Sequence[float]) -> list[tuple[float, ...]]:
    """How much of each op's code has left each of the caches, 0 to 1, by the time since one of its name ended."""
    return [_stale(since) for since in since_last(list(zip(names, seconds, strict=True)))]


def _stale(since: float) -> tuple[float, ...]:
    if since <= SINCE[0]:
        return _FRESH
    reached = math.log(since)
    return tuple([min(max((reached - least) / width, 0.0), 1.0) for least, width in _SCALES])


#: Of code that has left no cache.
_FRESH = (0.0,) * len(AFTER)
#: Where the scale of each cache begins and how long it is, in log(seconds): every op of every priced step asks.
_SCALES = tuple((math.log(least), math.log(most / least)) for least, most in itertools.pairwise(SINCE))


def framework_seconds(counts: Mapping[str, float], coefficients: Mapping[str, float]) -> float:
    """The framework's own time in one step: what each of ``counts`` costs, added up."""
    return sum(coefficients.get(name, 0.0) * count for name, count in counts.items())
