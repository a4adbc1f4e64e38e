"""Changes to a workload or its trace that advice prices: what somebody could do to their script, done to the record."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from placer.nest import map_nest, tensors
from placer.pricing import parameter_updates
from placer.profile import DeviceFit
from placer.tracing import OpCall, Trace
from placer.workload import Workload

#: Slow activations and the one to try in their place: close in shape, and one cheap kernel on every device.
SUBSTITUTES: Mapping[str, str] = {"mish": "silu", "gelu": "silu", "softplus": "relu", "elu": "relu"}
#: Integer inputs up to this many elements keep their values when they are repeated; larger ones are only a shape.
_CONCRETE = 262_144


def batch_size(workload: Workload) -> int | None:
    """The first size that every input tensor shares; None where they have none in common."""
    inputs = tensors((workload.args, workload.kwargs))
    sizes = {None if tensor.is_nested or not tensor.dim() else tensor.shape[0] for tensor in inputs}
    size = sizes.pop() if len(sizes) == 1 else None
    return size or None


def with_batch(workload: Workload, size: int) -> Workload:
    """The same workload on ``size`` rows: inputs become shapes; small integer ones (indices, masks) keep values.

    What a batch takes to load grows with its rows.
    """

    def resized(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor):
            return leaf
        shape = (size, *leaf.shape[1:])
        if leaf.is_meta or leaf.is_floating_point() or leaf.is_complex() or leaf[:1].numel() * size > _CONCRETE:
            return torch.empty(shape, dtype=leaf.dtype, device="meta")
        times = -(-size // leaf.shape[0])
        return leaf.repeat(times, *(1,) * (leaf.dim() - 1))[:size]

    args, kwargs = map_nest(resized, (workload.args, workload.kwargs))
    loading, rows = workload.loading, batch_size(workload)
    if loading is not None and rows:
        loading = dataclasses.replace(loading, seconds=loading.seconds * size / rows)
    return dataclasses.replace(workload, args=args, kwargs=kwargs, loading=loading)


def without_syncs(trace: Trace) -> Trace:
    """The trace as if nothing were read back during the step."""
    return dataclasses.replace(trace, syncs=0)


def substitutable(trace: Trace) -> tuple[str, ...]:
    """The slow activations in a trace that ``substituted`` knows another one for."""
    found = {call.op.removeprefix("aten::").removesuffix("_backward").rstrip("_") for call in trace.calls}
    return tuple(name for name in SUBSTITUTES if name in found)


def substituted(trace: Trace, name: str) -> Trace:
    """The trace with one activation, forward and backward, replaced by its substitute."""
    new = SUBSTITUTES[name]
    backward = "aten::threshold_backward" if new == "relu" else f"aten::{new}_backward"

    def changed(call: OpCall) -> OpCall:
        if call.op in (f"aten::{name}", f"aten::{name}_"):
            return call._replace(op=f"aten::{new}", args=())
        if call.op == f"aten::{name}_backward":
            return call._replace(op=backward, args=(0,) if new == "relu" else ())
        return call

    return dataclasses.replace(trace, calls=tuple(map(changed, trace.calls)))


def knows_fused(fit: DeviceFit, optimizer: str) -> bool:
    """Whether the fused form of an optimizer (as traced: ``Adam``) was measured on a device."""
    family, updated = fit.families.get("optimizer"), parameter_updates.PREFIX + optimizer
    if family is not None and f"{updated}.fused" in family.ops:
        return True
    if family is None or "fused" not in family.feature_names or updated not in family.ops:
        return False
    column, op = family.feature_names.index("fused"), family.ops.index(updated)
    return bool(((family.x[:, column] > 0.0) & (family.op_index == op)).any())


def with_fused(trace: Trace) -> Trace:
    """The trace with its optimizer's update in one kernel."""

    def changed(call: OpCall) -> OpCall:
        if not parameter_updates.is_update(call):
            return call
        kept = tuple(a for a in call.args if not (isinstance(a, tuple) and a[:1] in (("fused",), ("foreach",))))
        return call._replace(args=(("fused", True), *kept))

    return dataclasses.replace(trace, calls=tuple(map(changed, trace.calls)))
