"""What one op costs: its FLOPs and the bytes it moves, counted from its real operands.

Nothing of placer is used here: what placer predicts is compared with this.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import flop_registry

#: Ops that read only the indexed rows of their first operand.
ROWS_ONLY = frozenset({"embedding", "index_select", "gather", "index"})


def kernel_seconds(
    func: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    inputs: Sequence[Tensor],
    out: Any,
    *,
    flops: Callable[[str, torch.dtype], float],
    bytes_per_second: float,
) -> float:
    """Seconds of arithmetic or of memory traffic, whichever is longer; ``out`` is what the op gave.

    ``flops`` is FLOP/s by the name of the op and its dtype.
    """
    outputs = tensors_in(out)
    count = flop_registry.get(func._overloadpacket)
    work = count(*args, **kwargs, out_val=out) if count is not None else _elements(outputs)
    double = any(t.dtype == torch.float64 for t in outputs)
    dtype = torch.float64 if double else outputs[0].dtype if outputs else torch.float32
    rate = flops(func._overloadpacket.__name__, dtype)
    return max(work / rate, moved_bytes(func, inputs, outputs) / bytes_per_second)


def moved_bytes(func: Any, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> int:
    """Bytes read and written; what is broadcast is read once."""
    if func._overloadpacket.__name__ in ROWS_ONLY:
        return 2 * sum(map(_stored, outputs)) + sum(_stored(t) for t in inputs if not t.is_floating_point())
    return sum(map(_stored, inputs)) + sum(map(_stored, outputs))


def tensors_in(nest: Any) -> list[Tensor]:
    """The tensors of an op's operands or results: in lists and tuples, never deeper."""
    if isinstance(nest, Tensor):
        return [nest]
    if isinstance(nest, (list, tuple)):
        return [tensor for item in nest for tensor in tensors_in(item)]
    return []


def _stored(tensor: Tensor) -> int:
    count = 1
    if tensor.layout is torch.sparse_coo:
        return tensor._values().nbytes + tensor._indices().nbytes
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        count *= size if stride else min(size, 1)
    return count * tensor.element_size()


def _elements(outputs: Sequence[Tensor]) -> int:
    return max((t.numel() for t in outputs), default=0)
