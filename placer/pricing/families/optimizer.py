"""The update of one parameter tensor, named after the optimizer."""

from __future__ import annotations

from placer.pricing import parameter_updates
from placer.pricing.families.family import Family, Features
from placer.pricing.work import Work
from placer.tracing import OpCall

#: Ops inside the update of one parameter tensor: Adam's loop has about a dozen.
_OPS_IN_UPDATE = 12


def _read(call: OpCall) -> Features:
    """FLOPs: 12 per element. ``tensors`` is 1 here; ``describe`` fills in how many the step updates."""
    settings = parameter_updates.settings(call)
    flags = tuple(float(bool(settings.get(name))) for name in ("momentum", "weight_decay", "fused"))
    return Features(12.0 * call.inputs[0].numel, (call.inputs[0].numel, 1), flags)


def _step_share(work: Work) -> float:
    """This tensor's share of what an optimizer's step does once."""
    return 1.0 / work.sizes[1]


FAMILY = Family(
    name="optimizer",
    prefixes=(parameter_updates.PREFIX,),
    sizes={"numel": "elements of the parameter", "tensors": "parameter tensors that the step updates"},
    flags={
        "momentum": "the optimizer has momentum",
        "weight_decay": "the optimizer has weight decay",
        "fused": "one kernel does the whole update",
    },
    read=_read,
    moved_bytes=parameter_updates.moved_bytes,
    amounts={"step_share": _step_share},
    dispatches=lambda _: _OPS_IN_UPDATE,
)
