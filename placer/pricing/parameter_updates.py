"""The update of one parameter tensor: how many kernels an optimizer runs, and how many bytes they move."""

from __future__ import annotations

from placer.tracing import OpCall

#: Prefix of the name of an update; the optimizer's class follows.
PREFIX = "optimizer::"
#: Kernels that update one tensor in torch 2.11's loops over tensors.
_KERNELS = {"SGD": 1, "Adam": 8, "AdamW": 8, "RMSprop": 5, "Adagrad": 5, "Adadelta": 6, "Adamax": 7, "NAdam": 8,
            "RAdam": 7}  # fmt: skip
#: Tensors of the parameter's size that an update reads and writes, parameter and gradient included.
_PASSES = {"SGD": 3, "Adam": 7, "AdamW": 7, "RMSprop": 5, "Adagrad": 5, "Adadelta": 7, "Adamax": 7}
#: Both, of an optimizer that is not listed.
_OTHER = 7


def is_update(call: OpCall) -> bool:
    """Whether a call updates one parameter; its phase may hold other ops too."""
    return call.op.startswith(PREFIX)


def settings(call: OpCall) -> dict[object, object]:
    """The optimizer's settings by name, as its update was traced."""
    return {a[0]: a[1] for a in call.args if isinstance(a, tuple) and len(a) == 2}


def kernels(call: OpCall) -> float:
    """Different kernels that run for one tensor; a fused update runs a single one."""
    return 1.0 if settings(call).get("fused") else float(_KERNELS.get(call.op.removeprefix(PREFIX), _OTHER))


def moved_bytes(call: OpCall) -> float:
    """Bytes read and written."""
    return float(_PASSES.get(call.op.removeprefix(PREFIX), _OTHER) * call.inputs[0].stored_bytes)
