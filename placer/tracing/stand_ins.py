"""Tensors that take another's place: the Tensor object stays, with all that refers to it, and gets other contents.

So optimizers, closures, tied weights and attributes of a parameter see the change. Only for tensors that a trace may
change: those of a forked child, or copies.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from placer.tracing.known_values import may_steer
from placer.tracing.unfollowed import Unfollowed

#: What was in the tensors before. Freeing memory of an accelerator is not for a child.
_kept: list[Tensor] = []


def without_values(tensors: Iterable[Tensor], floats: bool = False) -> None:
    """Make each a meta tensor of the same shape, strides and dtype; those that may steer the step keep their values.

    Nested tensors and other tensors made of several stay as they are: the ops on their parts are followed.
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
    """Give values to those that are only shapes."""
    for tensor in tensors:
        if tensor.is_meta:
            put(tensor, drawn(tensor))


def put(tensor: Tensor, contents: Tensor) -> None:
    """Exchange what is in two tensors. Hooks stay with the first, its gradient does not."""
    hooks = tensor._backward_hooks
    accumulated = getattr(tensor, "_post_accumulate_grad_hooks", None)
    with torch._C.DisableTorchFunction():
        if not is_lazy(tensor):
            contents = contents.detach().requires_grad_(tensor.requires_grad)
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
            return type(tensor)(tensor.requires_grad, device="meta", dtype=tensor.dtype)
        try:
            if tensor.layout != torch.strided:
                return tensor.to(device="meta")
            return torch.empty_strided(tuple(tensor.shape), tensor.stride(), dtype=tensor.dtype, device="meta")
        except RuntimeError as error:
            raise Unfollowed(f"a tensor with layout {tensor.layout} has no form without values: {error}") from error


def _is_made_of_others(tensor: Tensor) -> bool:
    return tensor.is_nested or is_traceable_wrapper_subclass(tensor)


def drawn(tensor: Tensor) -> Tensor:
    """Random numbers of its shape, as zeros make some ops too fast; for integers zeros, which are valid indices.

    The same numbers each time: how many steps an adaptive solver takes depends on them, and two explanations of one
    workload should agree.
    """
    result = torch.empty_strided(tuple(tensor.shape), tensor.stride(), dtype=tensor.dtype, device="cpu")
    if tensor.is_floating_point() or tensor.is_complex():
        return result.normal_(generator=torch.Generator().manual_seed(0))
    return result.zero_()


def on_host(tensors: Iterable[Tensor], real: bool) -> dict[int, Tensor]:
    """Copies on the CPU of the tensors on accelerators that a child needs the values of, by id.

    ``real``: of all of them; otherwise of those that may steer a step on tensors without values.
    """
    elsewhere = [t for t in tensors if t.device.type not in ("cpu", "meta")]
    return {id(t): t.detach().cpu() for t in elsewhere if real or may_steer(t)}


def of_modules(modules: Iterable[Any]) -> list[Tensor]:
    """The distinct parameters and buffers of modules."""
    found = {id(t): t for module in modules for t in (*module.parameters(), *module.buffers())}
    return list(found.values())
