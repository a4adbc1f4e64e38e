"""Catches PyTorch functions before they reach the dispatcher: whole ops, device arguments, autocast."""

from __future__ import annotations

import functools
import types as python_types
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._device import _device_constructors

from placer.tracing import whole
from placer.tracing.autocast import Autocast
from placer.tracing.python_calls import Uncounted
from placer.tracing.recorder import Recorder

_WHOLE: dict[Any, Callable[..., Any]] = {
    F.scaled_dot_product_attention: whole.attention,
    F.mish: whole.mish,
    **{getattr(torch._VF, n): whole.recurrent(n) for n in ("lstm", "gru", "rnn_tanh", "rnn_relu")},
    **{getattr(torch._VF, f"{n}_cell"): whole.cell(n) for n in ("lstm", "gru", "rnn_tanh", "rnn_relu")},
}


def _reentrant(function: Any) -> Callable[..., Any]:
    """A private copy of a Python function of torch that does not offer itself to function modes again.

    A mode is off while it handles a call, so whole ops inside would be missed; with the mode on, the function's own
    check would come straight back here. The copy skips the check.
    """
    never = dict.fromkeys(("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic"), _never)
    copy = python_types.FunctionType(function.__code__, {**function.__globals__, **never}, function.__name__)
    copy.__defaults__, copy.__kwdefaults__ = function.__defaults__, function.__kwdefaults__
    return copy


def _never(*_: Any) -> bool:
    return False


_MAX_POOL1D = (F.max_pool1d, torch.max_pool1d)
_REENTRANT = {F.multi_head_attention_forward: _reentrant(F.multi_head_attention_forward)}


class FunctionMode(TorchFunctionMode):
    """Keep it active around forward, loss and backward (activation checkpointing runs forward again there)."""

    def __init__(self, recorder: Recorder, autocast: torch.dtype | None) -> None:
        super().__init__()
        self.recorder = recorder
        self.autocast = Autocast(autocast) if autocast is not None else None
        self._constructors = _device_constructors()

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if self.autocast is not None:
            args, kwargs = self.autocast.cast(func, args, kwargs)
        handler = _whole_handler(func, args, kwargs)
        if handler is not None:
            self.recorder.original = functools.partial(func, *args, **kwargs)
            try:
                with Uncounted():
                    return handler(self.recorder, *args, **kwargs)
            finally:
                self.recorder.original = None  # it holds tensors
        if type(func) is python_types.FunctionType:
            # Entered a second time below: a function that offers itself to function modes was counted on its way here.
            self.recorder.python_calls.count -= 1
        reentrant = _REENTRANT.get(func)
        if reentrant is not None:
            with self:
                return reentrant(*args, **kwargs)
        if func in _MOVES:
            return _move(self.recorder, func, args, kwargs)
        if func in self._constructors:
            # Never the device asked for: naming one could create its context. The recorder makes the result meta,
            # unless it is small and integer: then its values are as good as known.
            device = self.recorder.constructor_device
            kwargs = kwargs if device is None else {**kwargs, "device": device}
        elif "device" in kwargs and kwargs["device"] is not None:
            device = self.recorder.argument_device
            kwargs = kwargs if device is None else {**kwargs, "device": device}
        elif func is Tensor.tolist:
            self.recorder.syncs += self.recorder.on_device(args[0])
        else:
            self.recorder.changing(func, args)
        return func(*args, **kwargs)


def _whole_handler(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[..., Any] | None:
    if func is F.dropout:
        return whole.dropout if whole.dropout_applies(*args, **kwargs) else None
    if func in _MAX_POOL1D:
        return whole.max_pool1d if whole.max_pool1d_applies(*args, **kwargs) else None
    return _WHOLE.get(func)


_MOVES = frozenset({Tensor.to, Tensor.cpu, Tensor.cuda})


def _move(recorder: Recorder, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Everything lives on the one device being priced: moves are no-ops, except one to the host by name."""
    tensor, *rest = args
    if recorder.constructor_device is None:  # a real run where the user's own tensors are
        result = func(*args, **kwargs)
        recorder.syncs += result.device.type == "cpu" and tensor.device.type != "cpu"
        return result
    if func is not Tensor.to:
        recorder.syncs += func is Tensor.cpu and recorder.on_device(tensor)
        return tensor
    if rest and isinstance(rest[0], Tensor):
        rest[0] = rest[0].dtype
    elif rest and (rest[0] is None or isinstance(rest[0], (str, int, torch.device))):
        recorder.syncs += rest[0] == "cpu" and isinstance(rest[0], str) and recorder.on_device(tensor)
        del rest[0]
    kwargs = {k: v for k, v in kwargs.items() if k not in ("device", "non_blocking")}
    rest = [r for r in rest if isinstance(r, torch.dtype)]
    if isinstance(kwargs.get("other"), Tensor):
        kwargs = {"dtype": kwargs["other"].dtype}
    return func(tensor, *rest, **kwargs) if rest or kwargs else tensor
