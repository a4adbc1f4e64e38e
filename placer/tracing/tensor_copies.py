"""Copies of single tensors: on the meta device for a trace, or with values for a real run."""

from __future__ import annotations

import torch
from torch import Tensor

from placer.errors import TraceError
from placer.tracing.known_values import may_steer
from placer.tracing.unfollowed import Unfollowed


def meta_tensor(tensor: Tensor, floats: bool = False) -> Tensor:
    """A meta tensor with the same shape, strides, dtype and ``requires_grad``.

    One that may steer the step is cloned with its values instead, to the CPU from wherever it is.
    """
    with torch._C.DisableTorchFunction(), torch.no_grad():
        if may_steer(tensor, floats):
            return tensor.detach().to("cpu", copy=True)
        if tensor.layout != torch.strided:
            return _sparse(tensor)
        result = torch.empty_strided(tuple(tensor.shape), tensor.stride(), dtype=tensor.dtype, device="meta")
        return result.requires_grad_(tensor.requires_grad) if tensor.requires_grad else result


def _sparse(tensor: Tensor) -> Tensor:
    try:
        return tensor.to(device="meta")
    except RuntimeError as error:
        raise Unfollowed(f"a tensor with layout {tensor.layout} cannot be traced: {error}") from error


def real_tensor(tensor: Tensor) -> Tensor:
    """A copy with its values, on the CPU, in memory of its own: same shape, strides, dtype and ``requires_grad``."""
    with torch._C.DisableTorchFunction(), torch.no_grad():
        if tensor.is_meta:
            raise TraceError("the model is on the meta device: it has no values, which this step needs to go on")
        if tensor.layout != torch.strided:
            result = tensor.detach().clone().cpu()
        else:
            # Only the memory the tensor spans: it may be a small part of a data set.
            span = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
            flat = tensor.detach().as_strided((span if tensor.numel() else 0,), (1,))
            result = flat.to("cpu", copy=True).as_strided(tuple(tensor.shape), tensor.stride())
        return result.requires_grad_(tensor.requires_grad) if tensor.requires_grad else result


def real_input(tensor: Tensor) -> Tensor:
    """A copy of an input with values; one that is only a shape is drawn at random (zeros make some ops too fast).

    The same numbers each time: how many steps an adaptive solver takes depends on them, and two explanations of one
    workload should agree.
    """
    if not tensor.is_meta:
        return real_tensor(tensor)
    drawn = torch.empty_strided(tuple(tensor.shape), tensor.stride(), dtype=tensor.dtype)
    floating = tensor.is_floating_point() or tensor.is_complex()
    drawn = drawn.normal_(generator=torch.Generator().manual_seed(0)) if floating else drawn.zero_()
    return drawn.requires_grad_(tensor.requires_grad) if tensor.requires_grad else drawn
