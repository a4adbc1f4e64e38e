"""What one op costs: its FLOPs and the bytes it moves, counted from its real operands.

Nothing of placer is used here: what placer predicts is compared with this.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from simulated.spec import Spec

#: Ops that read only the indexed rows of their first operand.
ROWS_ONLY = frozenset({"embedding", "index_select", "gather", "index"})


PRODUCTS = frozenset({"mm", "addmm", "bmm", "baddbmm", "convolution", "convolution_backward"})


def kernel_seconds(
    spec: Spec, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], inputs: Sequence[Tensor], out: Any
) -> float:
    """Seconds of arithmetic or of memory traffic, whichever is longer; ``out`` is what the op gave."""
    outputs = [leaf for leaf in tree_leaves(out) if isinstance(leaf, Tensor)]
    count = flop_registry.get(func._overloadpacket)
    work = count(*args, **kwargs, out_val=out) if count is not None else _elements(outputs)
    double = any(t.dtype == torch.float64 for t in outputs)
    dtype = torch.float64 if double else outputs[0].dtype if outputs else torch.float32
    flops = rate(spec, func._overloadpacket.__name__, dtype)
    return max(work / flops, moved_bytes(func, inputs, outputs) / spec.bytes_per_second)


def rate(spec: Spec, op: str, dtype: torch.dtype) -> float:
    """FLOP/s. Narrow dtypes and TF32 are for products and convolutions."""
    if dtype == torch.float64:
        return spec.flops_float64
    if op not in PRODUCTS:
        return spec.flops
    if dtype == torch.bfloat16:
        return spec.flops_bfloat16 or spec.flops
    if dtype == torch.float16:
        return spec.flops_float16 or spec.flops
    return spec.flops_tf32 if spec.flops_tf32 and _tf32(op) else spec.flops


def _tf32(op: str) -> bool:
    """Whether torch allows TF32 for this op: as it comes, for convolutions only."""
    if op.startswith("convolution"):
        current, legacy = getattr(torch.backends.cudnn, "conv", None), torch.backends.cudnn
    else:
        current, legacy = torch.backends.cuda.matmul, torch.backends.cuda.matmul
    precision = getattr(current, "fp32_precision", None)
    return precision == "tf32" if precision is not None else bool(legacy.allow_tf32)


def moved_bytes(func: Any, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> int:
    """Bytes read and written; what is broadcast is read once."""
    if func._overloadpacket.__name__ in ROWS_ONLY:
        return 2 * sum(map(_stored, outputs)) + sum(_stored(t) for t in inputs if not t.is_floating_point())
    return sum(map(_stored, inputs)) + sum(map(_stored, outputs))


def _stored(tensor: Tensor) -> int:
    count = 1
    if tensor.layout is torch.sparse_coo:
        return tensor._values().nbytes + tensor._indices().nbytes
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        count *= size if stride else min(size, 1)
    return count * tensor.element_size()


def _elements(outputs: Sequence[Tensor]) -> int:
    return max((t.numel() for t in outputs), default=0)
