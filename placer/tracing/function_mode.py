"""Catches PyTorch functions before they reach the dispatcher: fused ops, device arguments, autocast."""

from __future__ import annotations

import contextlib
import functools
import types as python_types
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._device import _device_constructors

from placer.tracing.autocast import AutocastRegions
from placer.tracing.fused_ops import FUSED, KERNELS, DeviceKind, handler_of, kernel_of
from placer.tracing.python_calls import Uncounted
from placer.tracing.recorder import Recorder


def _reentrant(function: Any) -> Callable[..., Any]:
    """A private copy of a Python function of torch that does not offer itself to function modes again.

    A mode is off while it handles a call, so fused ops inside would be missed; with the mode on, the function's own
    check would come straight back here. The copy skips the check.
    """
    never = dict.fromkeys(("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic"), _never)
    copy = python_types.FunctionType(function.__code__, {**function.__globals__, **never}, function.__name__)
    copy.__defaults__, copy.__kwdefaults__ = function.__defaults__, function.__kwdefaults__
    return copy


def _never(*_: Any) -> bool:
    return False


#: Backward passes are among them where activation checkpointing runs forward again inside. Else the mode stays off:
#: with it on, torch dies of an interrupt that comes while ``_set_grad_enabled`` imports a module.
_BACKWARD = (Tensor.backward, torch.autograd.backward)
_REENTRANT = {function: _reentrant(function) for function in (F.multi_head_attention_forward, *_BACKWARD)}


#: The functions that ``handler_of`` and ``kernel_of`` know. Most calls are of others, and asking takes time.
_CAUGHT = FUSED | KERNELS


class FunctionMode(TorchFunctionMode):
    """Active around forward, loss and backward (activation checkpointing runs forward again in backward)."""

    def __init__(self, recorder: Recorder, autocast: torch.dtype | None, kind: DeviceKind) -> None:
        super().__init__()
        self.recorder, self.kind = recorder, kind
        self.autocast = AutocastRegions(kind, autocast, real=recorder.real)
        self._constructors = _device_constructors()

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        autocast = self.autocast.now
        if autocast is not None:
            args, kwargs = autocast.cast(func, args, kwargs)
        handler = None
        if func in _CAUGHT and self.recorder.fused and torch._C._functorch.peek_interpreter_stack() is None:
            handler = handler_of(func, args, kwargs) or kernel_of(
                func, args, kwargs, self.kind, autocast=autocast is not None
            )
        if handler is not None:
            self.recorder.original = functools.partial(func, *args, **kwargs)
            try:
                with Uncounted():
                    return handler(self.recorder, *args, **kwargs)
            finally:
                self.recorder.original = None  # it holds tensors
        if type(func) is python_types.FunctionType:
            # A function that offers itself to function modes is entered twice: on its way here, and again below.
            self.recorder.python_calls.count -= 1
            plain = getattr(func, "__wrapped__", func)
            reentrant = _REENTRANT.get(plain)
            if reentrant is not None and (plain not in _BACKWARD or self.autocast.checkpoints):
                with self.autocast.backward() if plain in _BACKWARD else contextlib.nullcontext(), self:
                    return reentrant(*args, **kwargs)
        if func in _MOVES:
            return _move(self.recorder, func, args, kwargs)
        if func in self._constructors:
            # Never the device asked for: naming one could create its context. The recorder makes the result meta,
            # unless it is small and integer: then its values count as known.
            kwargs = {**kwargs, "device": "cpu"}
        elif "device" in kwargs and kwargs["device"] is not None:
            kwargs = {**kwargs, "device": self.recorder.argument_device}
        elif func is Tensor.tolist:
            self.recorder.log.syncs += self.recorder.on_device(args[0])
        return func(*args, **kwargs)


_MOVES = frozenset({Tensor.to, Tensor.cpu, Tensor.cuda})


def _move(recorder: Recorder, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """All tensors are on the one device being priced: a move does nothing, except one to the host by name."""
    tensor, *rest = args
    kwargs = dict(kwargs)
    if func is not Tensor.to:
        recorder.log.syncs += func is Tensor.cpu and recorder.on_device(tensor)
        return tensor
    device = kwargs.pop("device", None)
    kwargs.pop("non_blocking", None)
    if rest and isinstance(rest[0], Tensor):
        rest[0] = rest[0].dtype
    elif rest and (rest[0] is None or isinstance(rest[0], (str, int, torch.device))):
        device = rest.pop(0)
    if device == "cpu" and isinstance(device, str):  # ``y.device`` is the device being priced
        recorder.log.syncs += recorder.on_device(tensor)
    rest = [r for r in rest if isinstance(r, torch.dtype)]
    if isinstance(kwargs.get("other"), Tensor):
        kwargs = {"dtype": kwargs["other"].dtype}
    return func(tensor, *rest, **kwargs) if rest or kwargs else tensor
