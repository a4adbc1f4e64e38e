"""The framework's own work in one step: Python between the ops, autograd's engine, the optimizer's loop.

It is counted here and priced by coefficients that calibration learns. What a function costs depends on its reuse
distance (see ``reuse_distances``): the larger that is, the further out its code is evicted, from one cache to the next
and to memory. So ops and functions are counted once as they are, and once weighted by their reuse distance.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

from placer.pricing.ops import ANY_UPDATE, row_of, rows_of_family, updates
from placer.pricing.shapes.layers import Recurrent
from placer.pricing.shapes.moves import FUSED, Update
from placer.pricing.shapes.shape import Work
from placer.pricing.work import is_update, reuse_distances
from placer.profile import Device
from placer.tracing import Trace, once_per_trace

#: Seconds of an op's own work after which the framework's code has left a core's own caches.
NEAR = 50e-6
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
    "step",
    "forward_op",
    "op_reuse_distance_100_ops",
    "python_call",
    "call_reuse_distance_100_ops",
    "evicted_call",
    *(f"{what}_reuse_distance_{scale}" for what in ("op", "recorded_op", "call") for scale in SCALES),
)
BACKWARD = (
    "training_step",
    "backward_op",
    "autograd_node",
    "cold_node",
    *(f"backward_op_reuse_distance_{scale}" for scale in SCALES),
)
UPDATE = ("update", "updated_tensor")
#: All counts that calibration learns a cost of.
LEARNT = (*FORWARD, *BACKWARD, *UPDATE)
#: The rate that says how long a host takes to issue an op to a GPU, in times of the reference host's, where its own
#: dispatch does not tell.
ISSUE_RATIO = "issue_ratio"
#: Name of the doubt of a host's pace in a fit's interval: the standard deviation of the log of what it takes.
HOST_DOUBT = "host"

#: Seconds of what runs around compiled code (see ``compiled.host_counts``), which calibration does not learn. Measured
#: on one CPU (docs/compiled.md): a call checks its guards and enters the compiled code, a training step goes through an
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
    - ``forward_op``: ops that Python calls, those of an update that is traced as it runs included. One that is measured
      whole is ``updated_tensor``.
    - the loop around the step enters its functions (``Trace.loop_calls``) once a step, so their reuse distance is the
      whole step.
    - ``cold_node``: autograd nodes, weighted by the share of their code that no core's own cache holds.
    - ``evicted_call``: Python functions whose code other functions have evicted (``Trace.evicted_calls``).
    """
    last, key = _last_counts(trace), tuple(host_seconds)
    counts = last.get(key)
    if counts is None:
        counts = _counts(trace, key)
        last.clear()  # another thread may do the same meanwhile
        last[key] = counts
    return dict(counts)


@once_per_trace
def _last_counts(_: Trace) -> dict[tuple[float, ...], dict[str, float]]:
    """The counts that a trace was last asked for, by the host's seconds: all GPUs behind one host share them."""
    return {}


def _counts(trace: Trace, host_seconds: Sequence[float]) -> dict[str, float]:
    training = trace.mode == "train"
    shares = distance_shares([call.op for call in trace.calls], host_seconds)
    from_python: list[Sequence[float]] = []
    recorded: list[Sequence[float]] = []
    in_backward: list[Sequence[float]] = []
    updated = 0.0
    for call, share in zip(trace.calls, shares, strict=True):
        if call.phase == "backward":
            in_backward.append(share)
        elif is_update(call):
            updated += 1.0
        else:
            from_python.append(share)
            if call.phase != "optimizer":
                recorded.append(share)
    forward, backward = float(len(from_python)), float(len(in_backward))
    far_forward, far_recorded, far_backward = map(_summed, (from_python, recorded, in_backward))
    # How much of the framework's code an op drives out of a core's own caches, on average.
    own = [min(s / NEAR, 1.0) for call, s in zip(trace.calls, host_seconds, strict=True) if call.phase != "optimizer"]
    cold = sum(own) / max(len(own), 1)
    many = min(len(trace.calls) / MANY_OPS, 1.0)
    calls, loop = float(trace.python_calls + trace.loop_calls), _shares(sum(host_seconds))
    calls_per_op = trace.python_calls / max(forward, 1.0)
    far_calls = [calls_per_op * own + trace.loop_calls * whole for own, whole in zip(far_forward, loop, strict=True)]
    return {
        "step": 1.0,
        "forward_op": forward,
        "op_reuse_distance_100_ops": many * forward,
        "python_call": calls,
        "call_reuse_distance_100_ops": many * calls,
        "evicted_call": trace.evicted_calls,
        **_by_scale("op", far_forward),
        **_by_scale("recorded_op", far_recorded, float(training)),
        **_by_scale("call", far_calls),
        "training_step": float(training),
        "backward_op": backward,
        "autograd_node": float(trace.autograd_nodes),
        "cold_node": cold * trace.autograd_nodes,
        **_by_scale("backward_op", far_backward),
        "update": float(updated > 0.0),
        "updated_tensor": updated,
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


def _summed(shares: Sequence[Sequence[float]]) -> Sequence[float]:
    """Of the ops of one phase together."""
    return tuple(map(sum, zip(*shares, strict=True))) or _NEAREST


def _by_scale(what: str, shares: Sequence[float], factor: float = 1.0) -> dict[str, float]:
    return {f"{what}_reuse_distance_{scale}": factor * share for scale, share in zip(SCALES, shares, strict=True)}


# --- what a host takes to drive a GPU --------------------------------------------------------------------------------

#: Names under which a fit stores the seconds to issue a call, to issue an update besides the calls in it, and to issue
#: each kernel of a recurrent op, or each time step of one that runs op by op. ``/`` and an op or a family may follow.
HOST, HOST_UPDATE, HOST_KERNEL, HOST_TIME_STEP = "host", "host_update", "host_kernel", "host_time_step"
#: The same of the number of kernels that an op runs in; ``/`` and an op follow.
KERNELS = "kernels"


def host_seconds(work: Work, framework: Mapping[str, float]) -> float:
    """Seconds to issue one call: those known of the op, else of its family, else of any op, else 0.0.

    An update is issued for all tensors at once: each call takes its own time and its share of the whole update's. A
    recurrent op is as many kernels as it has time steps, or a few.
    """
    seconds, shape = _of(work, HOST, framework, framework.get(HOST, 0.0)), work.shape
    if isinstance(shape, Recurrent):
        kernels = shape.launches(work) * framework.get(f"{HOST_KERNEL}/{work.op}", 0.0)
        return seconds + kernels + shape.steps * framework.get(f"{HOST_TIME_STEP}/{work.op}", 0.0)
    if not isinstance(shape, Update):
        return seconds
    if work.updated_alone:
        return shape.launches(work) * framework.get(f"{HOST}/elementwise", framework.get(HOST, 0.0))
    return seconds + _of(work, HOST_UPDATE, framework, 0.0) / shape.tensors


def kernels_of(work: Work, framework: Mapping[str, float]) -> float:
    """Kernels that one call runs in; 1.0 where it is not known. A tensor's share of an update may be less than one."""
    if f"{HOST_KERNEL}/{work.op}" in framework:
        return work.shape.launches(work)
    return framework.get(f"{KERNELS}/{issued_as(work)}", 1.0)


def pause_seconds(kernels: float, fit: Device) -> float:
    """Seconds between kernels that follow each other on the device, which no kernel's own time holds."""
    return kernels * fit.rates.get("kernel_gap_seconds", 0.0)


def issued_as(work: Work) -> str:
    """The name that the host's times of an op are kept under: a fused update is another call than a usual one."""
    return f"{work.op}{FUSED}" if isinstance(work.shape, Update) and work.shape.fused else work.op


def _of(work: Work, what: str, framework: Mapping[str, float], otherwise: float) -> float:
    return framework.get(f"{what}/{issued_as(work)}", framework.get(f"{what}/{work.family}", otherwise))


# A step on a fast GPU lasts as long as its host takes to issue it: on an H100 and two H200s all but 14 of 593 do. What
# the host runs is the same code everywhere, Python, torch's dispatcher and autograd's engine; hosts differ by how fast
# they run it, their pace. So the costs come with placer, and a calibration measures one number.

#: Seconds of each thing that a step consists of, on a host of pace 1: some counts of the step, ops by family or any
#: other op, a recurrent op and its gradient and each kernel of either, an optimizer's step and each op of it on each
#: tensor. Fitted to whole steps of the records of NVIDIA GPUs whose device waited for the host, without their copies:
#: 263 of the three calibrations, and 560 cells. On a record and on networks that they are not fitted to, steps are 16,
#: 16 and 15 % off in the median (``python -m placer.calibration.lab.validators.host_costs RECORD...`` prints all of
#: this). A cost holds what goes along with its name: a part of what a product takes is in the Python calls of the
#: layers around it.
COSTS: Mapping[str, float] = {
    "step": 10.3e-6, "python_call": 1.77e-6, "training_step": 265e-6, "autograd_node": 6.15e-6, "view": 8.84e-6,
    "matmul": 4.46e-6, "elementwise": 13.6e-6, "normalization": 13.1e-6, "attention": 24.4e-6, "convolution": 33.3e-6,
    "convolution_backward": 161e-6, "encoder": 14.3e-6, "any_op": 30.3e-6, "recurrent": 99.7e-6,
    "recurrent_backward": 425e-6, "recurrent_kernel": 15.3e-6, "optimizer_step": 273e-6, "tensor_by_op": 2.01e-6,
}  # fmt: skip
#: All that these are of.
HOST_WORK = tuple(COSTS)
#: Of them, what is a count of the step, and families whose ops take another time to issue than most do.
_COUNTED, _FAMILIES = HOST_WORK[:4], HOST_WORK[4:12]


def host_framework(seconds: Mapping[str, float] = COSTS) -> dict[str, float]:
    """The ``framework`` of a ``Device`` (seconds) of a host that takes these ``seconds`` for ``HOST_WORK``."""
    framework = {name: seconds[name] for name in _COUNTED}
    framework |= {f"{HOST}/{family}": seconds[family] for family in _FAMILIES}
    framework[HOST] = seconds["any_op"]
    for row in rows_of_family("recurrent"):
        name = f"aten::{row.op}"
        framework[f"{HOST}/{name}"] = seconds["recurrent_backward" if row.backward else "recurrent"]
        framework[f"{HOST_KERNEL}/{name}"] = seconds["recurrent_kernel"]
    framework[f"{HOST_UPDATE}/{ANY_UPDATE}"] = seconds["optimizer_step"]
    for update in (row_of(ANY_UPDATE), *updates()):
        framework[f"{HOST}/{update.op}"] = update.list_kernels * seconds["tensor_by_op"]
        framework[f"{HOST}/{update.op}{FUSED}"] = seconds["tensor_by_op"]
    return framework
