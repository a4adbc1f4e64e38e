"""Which tensors of a step have values, and how a tensor gets them or loses them.

Lengths, masks and indices steer control flow. They are small and integer, so their ops run for real beside a trace on
tensors without values. A tensor changes in its place: the Tensor object stays, with all that refers to it, and gets
other contents, so optimizers, closures, tied weights and attributes of a parameter see the change. That is for tensors
that a trace may change: those of a forked child, or copies.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from placer.errors import TraceError
from placer.tracing.operators import Operator
from placer.tracing.trace_data import TensorSpec


class NeedsRealRun(TraceError):
    """Tensors without values cannot follow the step; a real run may."""


class ValueUnknown(NeedsRealRun):
    """The step reads a tensor's value, which only a real run knows."""


#: Integer and boolean tensors up to this many elements keep their values.
CONCRETE_ELEMENTS = 262_144
#: The same for floating point constants, when the step is traced again because it reads one (points in time).
CONCRETE_FLOATS = 64

#: Ops on tensors with values run for real only while their result stays small, and these may grow it.
_GROWING = frozenset({"mm", "bmm", "repeat", "repeat_interleave", "outer", "cartesian_prod"})
#: Factories of floating point values a step may read: constants, and draws that decide what it runs (dropping layers,
#: mixing a batch). Empty and zero tensors are there to be written to.
_READABLE = frozenset({"arange", "linspace", "logspace", "full", "scalar_tensor", "ones", "rand", "randn"})


def keeps_values(tensor: Tensor, floats: bool = False) -> bool:
    """Whether ``tensor`` is one whose values the host knows: on the CPU, and ``may_steer``."""
    return tensor.device.type == "cpu" and may_steer(tensor, floats)


def may_steer(tensor: Tensor, floats: bool = False) -> bool:
    """Whether the copy of ``tensor`` keeps its values instead of becoming meta; small float ones with ``floats``."""
    if tensor.dtype.is_floating_point or tensor.dtype.is_complex:
        if not floats or tensor.requires_grad or isinstance(tensor, nn.Parameter):
            return False
        limit = CONCRETE_FLOATS
    else:
        limit = CONCRETE_ELEMENTS
    return not tensor.is_meta and tensor.layout == torch.strided and tensor.numel() <= limit


class KnownValues:
    """The tensors with values in one trace. A tensor that a meta tensor was written into has lost its values."""

    def __init__(self, floats: bool) -> None:
        """With ``floats``, small floating point constants and draws keep their values as well."""
        self.floats = floats
        self._lost: dict[int, Any] = {}  # storages by id; held, so that ids stay unique

    def keeps(self, tensor: Any) -> bool:
        """Whether a tensor is one whose values are kept."""
        return isinstance(tensor, Tensor) and keeps_values(tensor, self.floats)

    def lose(self, tensor: Tensor) -> None:
        """Something was written into this tensor that is not known; nothing to lose is a tensor without values."""
        if tensor.is_meta or tensor.layout is not torch.strided:
            return
        storage = tensor.untyped_storage()
        self._lost[id(storage)] = storage

    @property
    def any_lost(self) -> bool:
        """Whether any tensor has lost its values."""
        return bool(self._lost)

    def is_lost(self, tensor: Any) -> bool:
        """Whether this tensor has lost its values."""
        if not isinstance(tensor, Tensor) or tensor.is_meta or tensor.layout is not torch.strided:
            return False
        return id(tensor.untyped_storage()) in self._lost

    def made_by(self, info: Operator, result: Tensor) -> bool:
        """Whether a factory whose meta kernel gave ``result`` gives a tensor with values."""
        floating = result.dtype.is_floating_point or result.dtype.is_complex
        readable = self.floats and info.base in _READABLE
        limit = CONCRETE_ELEMENTS if not floating else CONCRETE_FLOATS if readable else -1
        return result.numel() <= limit

    def can_run(self, info: Operator, inputs: Sequence[TensorSpec], tensors: Sequence[Any]) -> bool:
        """Whether an op on ``tensors`` (specs: ``inputs``) runs for real: all have values, and the result is small.

        A view of a tensor with memory on the host is a view of that memory.
        """
        if info.view:
            return all(t.device.type == "cpu" and t.layout is torch.strided for t in tensors)
        if not all(map(self.keeps, tensors)):
            return False
        if info.base in _GROWING:
            return False
        shape = torch.broadcast_shapes(*[spec.shape for spec in inputs]) if info.pointwise else torch.Size(())
        return shape.numel() <= CONCRETE_ELEMENTS


#: What was in the tensors before. Freeing memory of an accelerator is not for a child.
_kept: list[Tensor] = []


def without_values(tensors: Iterable[Tensor], floats: bool = False) -> None:
    """Make each a meta tensor of the same shape, strides and dtype; those that may steer the step keep their values.

    Nested tensors and other tensors made of several stay as they are: the ops on their parts are followed. Those on an
    accelerator, which a child never touches, become plain ones.
    """
    for tensor in tensors:
        if is_lazy(tensor) or not (tensor.is_meta or _is_made_of_others(tensor) or may_steer(tensor, floats)):
            put(tensor, meta_like(tensor))


def with_values(tensors: Iterable[Tensor], hosted: Mapping[int, Tensor]) -> None:
    """Give each the values that ``hosted`` has for it by its id, on the CPU."""
    for tensor in tensors:
        if id(tensor) in hosted:
            put(tensor, hosted[id(tensor)])


def draw(tensors: Iterable[Tensor]) -> None:
    """Give values to those that are only shapes: random numbers, as zeros make some ops too fast.

    Integers get zeros, which are valid indices. The same numbers each time: how many steps an adaptive solver takes
    depends on them, and two explanations of one workload should agree.
    """
    for tensor in tensors:
        if tensor.is_meta:
            drawn = torch.empty_strided(tuple(tensor.shape), tensor.stride(), dtype=tensor.dtype, device="cpu")
            if tensor.is_floating_point() or tensor.is_complex():
                drawn.normal_(generator=torch.Generator().manual_seed(0))
            else:
                drawn.zero_()
            put(tensor, drawn)


def put(tensor: Tensor, contents: Tensor) -> None:
    """Exchange what is in two tensors. Hooks stay with the first, its gradient does not."""
    hooks = tensor._backward_hooks
    accumulated = getattr(tensor, "_post_accumulate_grad_hooks", None)
    with torch._C.DisableTorchFunction():
        if not is_lazy(tensor):
            contents = contents.detach().requires_grad_(tensor.requires_grad)
        made_of_others: bool = is_traceable_wrapper_subclass(tensor)
        if made_of_others:  # its parts are attributes
            plain_parameter = type(contents) is Tensor and isinstance(tensor, nn.Parameter)
            tensor.__class__ = nn.Parameter if plain_parameter else type(contents)
            tensor.__dict__.update(contents.__dict__)
        torch._C._swap_tensor_impl(tensor, contents)
        if hooks:
            tensor._backward_hooks = hooks
        if accumulated:
            tensor._post_accumulate_grad_hooks = accumulated
    _kept.append(contents)


def meta_like(tensor: Tensor) -> Tensor:
    """A meta tensor of the same shape, strides and dtype."""
    with torch._C.DisableTorchFunction(), torch.no_grad():
        if is_lazy(tensor):
            kind: Any = type(tensor)
            return cast(Tensor, kind(tensor.requires_grad, device="meta", dtype=tensor.dtype))
        try:
            if tensor.layout != torch.strided:
                return tensor.to(device="meta")
            return torch.empty_strided(tuple(tensor.shape), tensor.stride(), dtype=tensor.dtype, device="meta")
        except RuntimeError as error:
            raise NeedsRealRun(f"a tensor with layout {tensor.layout} has no form without values: {error}") from error


def _is_made_of_others(tensor: Tensor) -> bool:
    return tensor.device.type == "cpu" and (tensor.is_nested or is_traceable_wrapper_subclass(tensor))


def on_host(tensors: Iterable[Tensor], real: bool) -> dict[int, Tensor]:
    """Copies on the CPU of the tensors on accelerators that a child needs the values of, by id.

    ``real``: of all of them; otherwise of those that may steer a step on tensors without values.
    """
    elsewhere = [t for t in tensors if t.device.type not in ("cpu", "meta")]
    return {id(t): t.detach().cpu() for t in elsewhere if real or may_steer(t)}


def of_modules(modules: Iterable[nn.Module]) -> list[Tensor]:
    """The distinct parameters and buffers of modules."""
    tensors: dict[int, Tensor] = {}
    for module in modules:
        for part in module.modules():
            for tensor in (*part._parameters.values(), *part._buffers.values()):
                if tensor is not None:
                    tensors[id(tensor)] = tensor
    return list(tensors.values())
