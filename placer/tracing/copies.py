"""Deep copies of workloads, with every tensor converted on the way. The originals are only read."""

from __future__ import annotations

import copy
import dataclasses
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.overrides import TorchFunctionMode

from placer.errors import TraceError, first_line
from placer.tracing import values
from placer.tracing.isolation import isolated
from placer.tracing.reachable import Reachable
from placer.tracing.values import may_steer
from placer.workload import Workload, unwrap

T = TypeVar("T")
Convert = Callable[[Tensor], Tensor]

_HOOKS = (
    "_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks", "_state_dict_hooks",
    "_state_dict_pre_hooks", "_load_state_dict_pre_hooks", "_load_state_dict_post_hooks",
)  # fmt: skip


def copied(workload: Workload, real: bool) -> Workload:
    """The workload on copies: with values, on the CPU, or without.

    Hooks that are not torch's own are left out: they may reach what is the user's. Raises TraceError where something
    refuses to be copied, and for a step function: what it closes over cannot be.
    """
    if workload.is_step_function:
        raise TraceError(
            "a step function can only be traced in a child process, and none can be forked here; give choose the model"
        )
    if real and workload.draw is not None:
        workload.draw()
    parts = (unwrap(workload.target), workload.args, workload.kwargs, workload.loss, workload.optimizer)
    target, args, kwargs, loss, optimizer = deep_copy(parts, _with_values if real else without_values)
    without_hooks(target)
    return dataclasses.replace(
        workload, target=target, modules=(target,), args=args, kwargs=kwargs, loss=loss, optimizer=optimizer, draw=None
    )


def meta_model(model: nn.Module) -> nn.Module:
    """A copy of a model without values and without the user's hooks, which keeps no memory of the original alive.

    Small integer tensors keep their values, as they may steer the step. Raises TraceError where it cannot be copied.
    """
    result: nn.Module = deep_copy(unwrap(model), without_values)
    without_hooks(result)
    return result


def meta_inputs(nest: T) -> T:
    """A copy of a nest of inputs without values."""
    return deep_copy(nest, without_values)


def meta_optimizer(
    optimizer: torch.optim.Optimizer, model: nn.Module, copied: nn.Module
) -> torch.optim.Optimizer | None:
    """An optimizer of the same class and settings over its part of ``model``, in the copy; None where it has none.

    Without state, hooks, and the ``step`` that a scheduler wrapped: those would keep the original alive.
    """
    copies = {id(own): copy for own, copy in zip(unwrap(model).parameters(), copied.parameters(), strict=True)}
    groups = []
    for group in optimizer.param_groups:
        found = [copies[id(parameter)] for parameter in group["params"] if id(parameter) in copies]
        if found:
            groups.append({**group, "params": found})
    if not groups:
        return None
    clone = object.__new__(type(optimizer))
    for name, value in vars(optimizer).items():
        if name.startswith("_optimizer_") and isinstance(value, dict):
            clone.__dict__[name] = OrderedDict()
        elif name != "step":
            clone.__dict__[name] = value
    clone.param_groups, clone.state = groups, defaultdict(dict)
    return clone


def deep_copy(original: T, convert: Convert) -> T:
    """A deep copy with converted tensors. TraceError where something refuses to be copied."""
    try:
        with isolated(), torch.no_grad(), _CopyTensors(convert) as tensors:
            found = Reachable(original=original)
            held = [*values.of_modules(found.modules.values()), *found.tensors]
            return copy.deepcopy(original, {id(tensor): tensors.copy(tensor) for tensor in held})
    except Exception as error:  # the boundary to the copying of any object
        raise TraceError(f"the workload could not be copied: {type(error).__name__}: {first_line(error)}") from error


def without_hooks(model: nn.Module) -> None:
    """Take every hook away that is not torch's own, such as those of spectral_norm, which are part of the model."""
    for module in model.modules():
        for name in _HOOKS:
            hooks = module.__dict__.get(name) or {}
            for key in [key for key, hook in hooks.items() if not _is_torchs_own(hook)]:
                del hooks[key]


def _is_torchs_own(hook: Any) -> bool:
    hook = getattr(hook, "func", hook)  # functools.partial
    hook = getattr(hook, "__self__", hook)
    name = getattr(hook, "__module__", None) or type(hook).__module__
    return name == "torch" or name.startswith("torch.")


def without_values(tensor: Tensor) -> Tensor:
    """A meta tensor like it; one that may steer the step is cloned with its values, to the CPU."""
    if not is_lazy(tensor) and may_steer(tensor):
        return tensor.detach().to("cpu", copy=True)
    return values.meta_like(tensor)


def _with_values(tensor: Tensor) -> Tensor:
    return tensor.detach().clone() if tensor.is_meta or is_lazy(tensor) else tensor.detach().to("cpu", copy=True)


class _CopyTensors(TorchFunctionMode):
    """Makes ``copy.deepcopy`` convert tensors: they offer their ``__deepcopy__`` to function modes first."""

    def __init__(self, convert: Convert) -> None:
        super().__init__()
        self.convert = convert

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is not Tensor.__deepcopy__:
            return func(*args, **(kwargs or {}))
        tensor, memo = args
        if id(tensor) not in memo:
            memo[id(tensor)] = self.copy(tensor)
        return memo[id(tensor)]

    def copy(self, tensor: Tensor) -> Tensor:
        """A converted tensor of the same class, with the same attributes."""
        with torch._C.DisableTorchFunction():
            found = self.convert(tensor)
            if isinstance(tensor, nn.Parameter) and not isinstance(found, nn.Parameter):
                found = nn.Parameter(found, requires_grad=tensor.requires_grad)
            elif tensor.requires_grad:
                found.requires_grad_()
            found.__dict__.update(tensor.__dict__)
            return found
