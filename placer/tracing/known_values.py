"""Which tensors keep their values while the rest of a step runs on meta tensors.

Lengths, masks and indices steer control flow. They are small and integer, so their ops run for real beside the trace.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from placer.tracing import layout
from placer.tracing.op_schema import Operator
from placer.tracing.trace_data import TensorSpec

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
        return not (info.pointwise and layout.numel_broadcast(inputs) > CONCRETE_ELEMENTS) and info.base not in _GROWING
