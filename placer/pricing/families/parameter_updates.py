"""The update of one parameter tensor: how many kernels an optimizer runs, and how many bytes they move.

The CPU updates one tensor after the other. On an accelerator torch updates all of them together: op by op, each over
the list of all tensors (``foreach``, torch's default there), or in one kernel that does everything (``fused``).
"""

from __future__ import annotations

from placer.pricing.families.family import Family, Features
from placer.tracing import OpCall

#: Prefix of the name of an update; the optimizer's class follows.
PREFIX = "optimizer::"
#: Kernels that update one tensor in torch 2.11's loops over tensors.
_KERNELS = {"SGD": 1, "Adam": 8, "AdamW": 8, "RMSprop": 5, "Adagrad": 5, "Adadelta": 6, "Adamax": 7, "NAdam": 8,
            "RAdam": 7, "SparseAdam": 17}  # fmt: skip
#: Tensors of the parameter's size that an update reads and writes, parameter and gradient included.
_PASSES = {"SGD": 3, "Adam": 7, "AdamW": 7, "RMSprop": 5, "Adagrad": 5, "Adadelta": 7, "Adamax": 7,
           "SparseAdam": 42}  # fmt: skip
#: Of an optimizer that is not listed.
_OTHER = 7
#: Of ``foreach``: ops over the list of all tensors, and passes over memory of the parameters' size, intermediates
#: included (``_multi_tensor_*`` in torch/optim, the same from torch 2.6 to 2.13).
_FOREACH = {"SGD": (1, 3), "Adam": (7, 18), "AdamW": (8, 20), "RMSprop": (5, 13), "Adagrad": (5, 13),
            "Adadelta": (11, 27), "Adamax": (6, 16), "NAdam": (8, 22), "RAdam": (9, 22)}  # fmt: skip
#: The updates that are listed.
KNOWN = tuple(f"{PREFIX}{name}" for name in _FOREACH)
#: The same of an optimizer that is not listed, and what momentum and weight decay add where they are an option.
_FOREACH_OTHER, _MOMENTUM, _WEIGHT_DECAY = (7, 18), (2, 5), (1, 3)
#: Tensors that one launch of such a kernel takes at the most, with five lists of operands (``depth_to_max_tensors`` in
#: ATen/native/cuda/MultiTensorApply.cuh).
TENSORS_PER_LAUNCH = 210


def is_update(call: OpCall) -> bool:
    """Whether a call updates one parameter; its phase may hold other ops too."""
    return call.op.startswith(PREFIX)


def settings(call: OpCall) -> dict[object, object]:
    """The optimizer's settings by name, as its update was traced."""
    return {a[0]: a[1] for a in call.args if isinstance(a, tuple) and len(a) == 2}


def moved_bytes(call: OpCall) -> float:
    """Bytes read and written."""
    return float(_PASSES.get(call.op.removeprefix(PREFIX), _OTHER) * call.inputs[0].stored_bytes)


def foreach(op: str, *, momentum: bool, weight_decay: bool) -> tuple[int, float]:
    """(ops over the list of all tensors, bytes they move over those of ``moved_bytes``) of a ``foreach`` update.

    ``op`` is the update's name.
    """
    name = op.removeprefix(PREFIX)
    ops, passes = _FOREACH.get(name) or (_KERNELS.get(name, _FOREACH_OTHER[0]), _PASSES.get(name, _FOREACH_OTHER[1]))
    for added, is_on in ((_MOMENTUM, momentum), (_WEIGHT_DECAY, weight_decay and name != "AdamW")):
        ops, passes = (ops + added[0], passes + added[1]) if is_on else (ops, passes)
    return ops, passes / _PASSES.get(name, _OTHER)


def looped(op: str) -> int:
    """Kernels of one tensor's update, by the update's name, where tensors are updated one after the other."""
    return _KERNELS.get(op.removeprefix(PREFIX), _FOREACH_OTHER[0])

#: Ops inside the update of one parameter tensor: Adam's loop has about a dozen.
OPS_IN_UPDATE = 12


def _read_update(call: OpCall) -> Features:
    """FLOPs: 12 per element. ``tensors`` is 1 here; ``describe`` fills in how many the step updates."""
    chosen = settings(call)
    flags = tuple(float(bool(chosen.get(name))) for name in ("momentum", "weight_decay", "fused"))
    return Features(12.0 * call.inputs[0].numel, (call.inputs[0].numel, 1), flags)


OPTIMIZER = Family(
    name="optimizer",
    prefixes=(PREFIX,),
    sizes={"numel": "elements of the parameter", "tensors": "parameter tensors that the step updates"},
    flags={
        "momentum": "the optimizer has momentum",
        "weight_decay": "the optimizer has weight decay",
        "fused": "one kernel does the whole update",
    },
    read=_read_update,
    moved_bytes=moved_bytes,
    amounts=("step_share",),
    count=lambda w, _: {"step_share": 1.0 / w.sizes[1]},  # of what an optimizer's step does once
)
