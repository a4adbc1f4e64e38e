"""Notices models through torch's own hooks, and lets go of them soon.

Hooks on every module cost each call some 3 µs. So they look at a few calls and are taken away; an optimizer's step
brings them back after 1, 2, 4, 8 ... of them. The hook on optimizers stays: it costs 1 to 2 µs a step. torch's compiler
makes other code where there are hooks on modules: they are gone for good before it begins.
"""

from __future__ import annotations

import functools
import importlib
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.modules import module as hooks
from torch.optim.optimizer import register_optimizer_step_post_hook

from placer.adoption.loading import when_loaded
from placer.adoption.seen import MOST_SHAPES, Inputs, SeenModel, Steps
from placer.errors import TraceError, first_line
from placer.machine import small_network
from placer.nest import tensors
from placer.tracing import meta_inputs, meta_model, meta_optimizer

F = TypeVar("F", bound=Callable[..., None])

#: The part of torch's compiler that is there without loading it.
_frames: Any = torch._C._dynamo.eval_frame
#: Calls of whole models that are looked at in the beginning, and each time that an optimizer brings the hook back.
FIRST_LOOKS, LATER_LOOKS = 20, 4
#: Architectures that are kept: beyond, a script tries out so many that no table would help.
MOST_MODELS = 50


@dataclass(frozen=True)
class _Call:
    """A call of a whole model that has not returned yet."""

    module: weakref.ref[nn.Module]
    thread: int
    args: tuple[Any, ...]


def _harmless(method: F) -> F:
    """Whatever fails in a hook is placer's own business: it stops watching, and the script goes on."""

    @functools.wraps(method)
    def guarded(self: Watcher, *given: Any) -> None:
        compiler = _frames.set_eval_frame(None)  # it compiles functions as they are called: not these
        try:
            method(self, *given)
        except Exception as error:  # noqa: BLE001 - the boundary: nothing of ours may reach the script
            self.failure = f"{type(error).__name__}: {first_line(error)}"
            self.stop()
        finally:
            _frames.set_eval_frame(compiler)

    return guarded  # type: ignore[return-value]


class Watcher:
    """What ran in this process: ``models``, and ``failure`` where watching had to end."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.models: list[SeenModel] = []
        self.failure: str | None = None
        self.left_out = 0
        self._clock = clock
        self._known: weakref.WeakKeyDictionary[nn.Module, SeenModel] = weakref.WeakKeyDictionary()
        self._inside: weakref.WeakSet[nn.Module] = weakref.WeakSet()
        self._steps: weakref.WeakKeyDictionary[torch.optim.Optimizer, Steps] = weakref.WeakKeyDictionary()
        self._alike: dict[Hashable, SeenModel] = {}
        self._handles: list[Any] = []
        self._stepping: Any = None
        self._left = 0
        self._running: _Call | None = None
        self._compiling = False

    def start(self) -> None:
        """Look from now on."""
        _expect_our_hooks()
        if self._stepping is None:
            self._stepping = register_optimizer_step_post_hook(self._stepped)
            when_loaded("torch._dynamo", self._before_compiling)
        self.look()

    def stop(self) -> None:
        """Take every hook away."""
        self._look_away()
        if self._stepping is not None:
            self._stepping.remove()
            self._stepping = None

    def look(self, calls: int = FIRST_LOOKS) -> None:
        """Look at the next few calls of whole models."""
        if self._compiling:
            return
        self._left = max(self._left, calls)
        self._running = None  # of a call that an exception ended
        if not self._handles:
            for seen in self.models:
                seen.since_step = None  # the runs since the last step were not counted
            self._handles = [
                hooks.register_module_forward_pre_hook(self._entered),
                hooks.register_module_forward_hook(self._returned, with_kwargs=True, always_call=True),
            ]

    def _look_away(self) -> None:
        self._left = 0
        for handle in self._handles:
            handle.remove()
            hooks._global_forward_hooks_with_kwargs.pop(handle.id, None)  # torch leaves it there
        self._handles = []

    @_harmless
    def _entered(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        """Remember the outermost module of a call."""
        if self._running is None:
            self._running = _Call(weakref.ref(module), threading.get_ident(), args)

    @_harmless
    def _returned(self, module: nn.Module, args: tuple[Any, ...], *rest: Any) -> None:
        """``rest`` is (kwargs, output); or the output alone, where the call raised."""
        call = self._running
        if call is None or call.thread != threading.get_ident() or call.module() is not module:
            return
        self._running = None
        if len(rest) == 2:
            self._ran(module, args, rest[0])
            self._left -= 1
            if self._left <= 0:
                self._look_away()

    def _before_compiling(self) -> None:
        """The compiler was loaded: have it leave the hooks alone, and tell before it begins."""
        callbacks: Any = importlib.import_module("torch._dynamo.callback")
        frames: Any = importlib.import_module("torch._dynamo.eval_frame")
        frames.skip_code(Watcher._entered.__code__)  # that of every harmless method
        callbacks.callback_handler.register_start_callback(self._compile)

    @_harmless
    def _compile(self, *details: Any) -> None:
        """Look away for good. What runs just now is noted as it came in: keyword arguments are not known yet."""
        self._compiling = True
        call, self._running = self._running, None
        if self._handles:
            self._look_away()
            module = None if call is None else call.module()
            if call is not None and module is not None:
                self._ran(module, call.args, {})

    def _ran(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if isinstance(module, nn.DataParallel):
            module = module.module
        first = next(tensors((args, kwargs)), None)
        if first is None or module in self._inside or not _is_plain(first) or torch._C._get_tracing_state() is not None:
            return
        parameter = next(module.parameters(), None)
        if parameter is None or type(module).__module__ == small_network.__module__:
            return  # a loss, a metric, the speed probe: no model of the script
        seen = self._known.get(module) or self._new(module, parameter)
        if seen is None:
            return
        trains = module.training or bool(seen.steps)
        learning = trains and torch.is_grad_enabled() and any(p.requires_grad for p in module.parameters())
        if learning and seen.since_step is not None:
            seen.since_step += 1
        signed = tuple((tensor.shape, tensor.dtype) for tensor in tensors((args, kwargs)))
        if seen.ran(learning, signed, first) is None and len(seen.inputs) < MOST_SHAPES:
            copied = meta_inputs((args, kwargs))
            seen.inputs[learning, signed] = Inputs(*copied, autocast=_autocast(first.device.type), count=1)

    def _new(self, module: nn.Module, parameter: Tensor) -> SeenModel | None:
        """A model that was not seen before, or one more of an architecture that was."""
        device = str(parameter.device)
        key = (type(module), device, *((n, p.shape, p.dtype, p.requires_grad) for n, p in module.named_parameters()))
        seen = self._alike.get(key)
        if seen is not None:
            seen.alike += 1
            seen.module = weakref.ref(module)
        elif len(self.models) >= MOST_MODELS:
            self.left_out += 1
            return None
        else:
            inner = getattr(module, "_orig_mod", module)  # what torch.compile was given
            seen = SeenModel(type(inner).__name__, device, weakref.ref(module))
            try:
                seen.copy = meta_model(module)
            except TraceError as error:
                seen.refused = first_line(error)
            self._alike[key] = seen
            self.models.append(seen)
        self._known[module] = seen
        self._inside.update(part for part in module.modules() if part is not module)
        return seen

    @_harmless
    def _stepped(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        """An optimizer has made a step."""
        steps = self._steps.setdefault(optimizer, Steps())
        steps.add(self._clock())
        rare = steps.count & (steps.count - 1) == 0
        if rare:
            self._connect(optimizer, steps)
        if self._handles:
            for seen in self.models:
                if any(steps is found for found in seen.steps):
                    seen.stepped()
        if rare:
            self.look(LATER_LOOKS)

    def _connect(self, optimizer: torch.optim.Optimizer, steps: Steps) -> None:
        """Tell the models whose parameters an optimizer has."""
        own = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
        for module, seen in list(self._known.items()):
            if any(steps is found for found in seen.steps) or own.isdisjoint(map(id, module.parameters())):
                continue
            seen.steps.append(steps)
            if seen.optimizer is None and seen.copy is not None:
                seen.optimizer = meta_optimizer(optimizer, module, seen.copy)


@functools.cache
def _expect_our_hooks() -> None:
    """Keep torch.compile from warning of hooks on all modules: these are not the script's, and do nothing to it.

    Once and for good: every change of the filters makes Python show again what it showed before.
    """
    warnings.filterwarnings("ignore", message=".*when there are global hooks on modules")


def _is_plain(tensor: Tensor) -> bool:
    """Whether a tensor has values: neither meta nor one of those that compilers and ``torch.func`` pass around."""
    wrapped = torch._C._functorch.is_functorch_wrapped_tensor(tensor)
    return not (tensor.is_meta or wrapped or type(tensor).__module__.startswith("torch._subclasses"))


def _autocast(kind: str) -> torch.dtype | None:
    """The dtype that a step on such a device is cast to just now."""
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
