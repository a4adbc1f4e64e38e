"""Copies of models, inputs and optimizers, with every tensor converted. The originals are only read."""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter
from torch.overrides import TorchFunctionMode

from placer.errors import TraceError
from placer.tracing import pytrees
from placer.tracing.unfollowed import Unfollowed

T = TypeVar("T")
Convert = Callable[[Tensor], Tensor]

_RUNNING_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_OTHER_HOOKS = (
    "_state_dict_hooks",
    "_state_dict_pre_hooks",
    "_load_state_dict_pre_hooks",
    "_load_state_dict_post_hooks",
)


class _CopyTensors(TorchFunctionMode):
    """Makes ``copy.deepcopy`` convert tensors: they offer their ``__deepcopy__`` to function modes first."""

    def __init__(self, convert: Convert, clone: Convert) -> None:
        super().__init__()
        self.convert, self.clone = convert, clone

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is Tensor.__deepcopy__:
            tensor, memo = args
            if id(tensor) not in memo:
                memo[id(tensor)] = self.convert(tensor)
            return memo[id(tensor)]
        if func is Tensor.clone:  # nn.Parameter.__deepcopy__ clones its data
            return self.clone(args[0])
        return func(*args, **(kwargs or {}))


def check_initialized(parameter: Tensor) -> None:
    """Raise TraceError for a parameter whose shape is not known yet."""
    if isinstance(parameter, (UninitializedParameter, UninitializedBuffer)):
        raise TraceError("the model has uninitialized parameters: run one batch through its lazy modules first")


def unwrap(model: nn.Module) -> nn.Module:
    """The module behind ``torch.compile``: compiling is no part of what is priced."""
    inner = getattr(model, "_orig_mod", None)
    return inner if isinstance(inner, nn.Module) else model


def has_hooks(module: nn.Module) -> bool:
    """Whether calling the module also calls a forward hook."""
    return bool(module._forward_hooks or module._forward_pre_hooks)


class Copies:
    """The copies made for one trace. ``memo`` maps the id of each original to its copy.

    ``convert`` makes the copy of a tensor of the model, ``convert_input`` that of one of the inputs.
    """

    def __init__(self, convert: Convert, convert_input: Convert, scripted: bool = False) -> None:
        """With ``scripted``, TorchScript modules are copied as they are; else they are a TraceError."""
        self.convert, self.convert_input, self.scripted = convert, convert_input, scripted
        self.memo: dict[int, Any] = {}
        self.notes: list[str] = []
        self._originals: list[Any] = []  # held: ids are only unique while the objects live

    def module(self, model: nn.Module) -> nn.Module:
        """A copy of the module tree. Hooks that are not torch's own are dropped: they may reach user state."""
        dropped, scripted = 0, list[nn.Module]()
        for module in model.modules():
            if isinstance(module, torch.jit.ScriptModule):
                if not self.scripted:
                    name = getattr(module, "original_name", type(module).__name__)
                    raise Unfollowed(f"{name} is a TorchScript module, which takes no tensors without values")
                scripted.append(module)
                continue
            state = module.__dict__
            for tensors in (state["_parameters"], state["_buffers"]):
                for tensor in tensors.values():
                    if tensor is not None and id(tensor) not in self.memo:
                        self.memo[id(tensor)] = self.parameter(tensor)
            for name in _RUNNING_HOOKS:
                hooks = state.get(name)
                if hooks is not None:
                    kept = OrderedDict((key, hook) for key, hook in hooks.items() if _is_torchs_own(hook))
                    dropped += len(hooks) - len(kept)
                    self.memo[id(hooks)] = kept
            for name in _OTHER_HOOKS:
                if name in state:
                    self.memo[id(state[name])] = OrderedDict()
        if dropped:
            self.notes.append(f"{dropped} user hook{' was' if dropped == 1 else 's were'} left out of the trace")
        result = self.object(model, "the model")
        if scripted:
            # TorchScript copies its tensors itself: on their device, and without a gradient of their own.
            result.to("cpu")
            for original, copied in zip(model.parameters(), result.parameters(), strict=True):
                self.memo.setdefault(id(original), copied.requires_grad_(original.requires_grad))
        return result

    def parameter(self, parameter: Tensor) -> Tensor:
        """An ``nn.Parameter`` (or buffer) standing for one of the user's."""
        check_initialized(parameter)
        result = self.convert(parameter)
        if isinstance(parameter, nn.Parameter):
            return nn.Parameter(result.detach(), requires_grad=parameter.requires_grad)
        return result

    def object(self, original: T, what: str) -> T:
        """A deep copy with converted tensors. TraceError when the object does not allow copying."""
        self._originals.append(original)
        try:
            with torch.no_grad(), _CopyTensors(self.convert, self.convert_input):
                return copy.deepcopy(original, self.memo)
        except (TypeError, AttributeError, RuntimeError, RecursionError, ValueError) as error:
            raise TraceError(f"{what} ({type(original).__name__}) could not be copied: {error}") from error

    def inputs(self, nest: T) -> T:
        """The nest with converted tensors."""
        self._originals.append(nest)
        result: T = pytrees.map_tensors(nest, self.convert_input, self.memo)
        return result


def _is_torchs_own(hook: Any) -> bool:
    """Hooks such as those of spectral_norm and weight_norm are part of what the model computes."""
    hook = getattr(hook, "func", hook)  # functools.partial
    hook = getattr(hook, "__self__", hook)
    name = getattr(hook, "__module__", None) or type(hook).__module__
    return name == "torch" or name.startswith("torch.")
