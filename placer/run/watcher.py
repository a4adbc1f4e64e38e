"""Notices models through torch's own hooks.

Two hooks on every module cost each call some 3 µs: they look at the first calls of whole models, and those after the
first step of each optimizer, and are taken away. The hook on optimizers stays: it costs 1 to 2 µs a step. torch's
compiler reads hooks as a part of a model, so the first ``torch.compile`` ends the watching.

What is kept is plain data and copies without values: nothing of the script's is kept alive.
"""

from __future__ import annotations

import functools
import time
import weakref
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import module as hooks
from torch.optim.optimizer import register_optimizer_step_post_hook

from placer.errors import TraceError, first_line
from placer.nest import tensors
from placer.tracing import meta_inputs, meta_model, meta_optimizer

#: Calls of whole models that are looked at.
FIRST_CALLS = 100
#: Times between steps that are kept, the newest: enough for a median.
RECENT = 1000


@dataclass
class Inputs:
    """One shape of inputs, how often it was seen, and how often it was the same tensor as the time before."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    autocast: torch.dtype | None
    count: int = 0
    same: int = 0

    @property
    def data(self) -> str:
        """A tensor that comes again and again lives where the model is; others are new batches."""
        return "device" if self.count > 1 and self.same == self.count - 1 else "host"


@dataclass
class SeenModel:
    """A model, or several of one architecture (``alike``), and what they ran on.

    ``copy`` has no values; ``refused`` says why there is none. ``module`` is the newest of them, if it still lives.
    ``inputs`` are by whether gradients were wanted, and the shapes. ``steps`` are those of its optimizers
    (``looked_steps``: while calls were looked at), ``between`` the newest seconds from one to the next.
    """

    name: str
    device: str
    module: weakref.ref[nn.Module]
    copy: nn.Module | None = None
    refused: str = ""
    alike: int = 1
    optimizer: torch.optim.Optimizer | None = None
    inputs: dict[tuple[bool, Hashable], Inputs] = field(default_factory=dict)
    steps: int = 0
    looked_steps: int = 0
    between: deque[float] = field(default_factory=lambda: deque(maxlen=RECENT))
    last_step: float | None = None
    last_tensor: weakref.ref[Tensor] | None = None

    @property
    def mode(self) -> str:
        """A model that was ever trained is asked about for training."""
        return "train" if any(learning for learning, _ in self.inputs) else "infer"

    @property
    def usual(self) -> Inputs:
        """The inputs it ran on most."""
        learning = self.mode == "train"
        return max((found for (key, _), found in self.inputs.items() if key == learning), key=lambda i: i.count)

    @property
    def runs_per_step(self) -> int:
        """How often it ran for one step of its optimizer."""
        learned = sum(found.count for (learning, _), found in self.inputs.items() if learning)
        return max(round(learned / self.looked_steps), 1) if self.looked_steps else 1

    @property
    def seconds(self) -> float | None:
        """Median wall time from one step of its optimizer to the next; None where there were not two."""
        return median(self.between) if self.between else None


def _harmless(method: Callable[..., None]) -> Callable[..., None]:
    """Whatever fails in a hook is placer's own business: it stops watching, and the script goes on."""

    @functools.wraps(method)
    def guarded(self: Watcher, *given: Any) -> None:
        try:
            method(self, *given)
        except Exception as error:  # noqa: BLE001 - the boundary: nothing of ours may reach the script
            self.end(f"{type(error).__name__}: {first_line(error)}")

    return guarded


class Watcher:
    """What ran in this process: ``models``, and ``failure`` where watching had to end."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.failure: str | None = None
        self._clock = clock
        self._known: weakref.WeakKeyDictionary[nn.Module, SeenModel] = weakref.WeakKeyDictionary()
        self._inside: weakref.WeakSet[nn.Module] = weakref.WeakSet()
        self._trained: weakref.WeakKeyDictionary[torch.optim.Optimizer, list[SeenModel]] = weakref.WeakKeyDictionary()
        self._alike: dict[Hashable, SeenModel] = {}
        self._looking: list[Any] = []
        self._counting: Any = None
        self._compile: Any = None
        self._left = 0
        self._running: int | None = None

    @property
    def models(self) -> list[SeenModel]:
        """In the order in which they were seen first."""
        return list(self._alike.values())

    def start(self) -> None:
        """Watch from now on."""
        self._counting = register_optimizer_step_post_hook(self._stepped)
        self._compile = compiler = torch.compile

        @functools.wraps(compiler)
        def compile_unwatched(*args: Any, **kwargs: Any) -> Any:
            self.end("the script called torch.compile")
            return compiler(*args, **kwargs)

        torch.compile = compile_unwatched
        self.look()

    def look(self) -> None:
        """Look at the next calls of whole models."""
        if self._counting is None:
            return
        self._left, self._running = FIRST_CALLS, None
        if not self._looking:
            self._looking = [
                hooks.register_module_forward_pre_hook(self._entered),
                hooks.register_module_forward_hook(self._returned, with_kwargs=True, always_call=True),
            ]

    def stop(self) -> None:
        """Take every hook away."""
        self._look_away()
        if self._counting is not None:
            self._counting.remove()
            self._counting = None
            torch.compile = self._compile

    def end(self, why: str) -> None:
        """Stop before the script has ended."""
        self.failure = why
        self.stop()

    def _look_away(self) -> None:
        for handle in self._looking:
            handle.remove()
            hooks._global_forward_hooks_with_kwargs.pop(handle.id, None)  # torch leaves it, and its compiler warns
        self._looking = []

    @_harmless
    def _entered(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        """Remember the outermost module of a call."""
        if self._running is None:
            self._running = id(module)

    @_harmless
    def _returned(self, module: nn.Module, args: tuple[Any, ...], *rest: Any) -> None:
        """``rest`` is (kwargs, output); or the output alone, where the call raised."""
        if self._running != id(module):
            return
        self._running = None
        if len(rest) == 2:
            self._ran(module, args, rest[0])
            self._left -= 1
            if self._left <= 0:
                self._look_away()

    def _ran(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if isinstance(module, nn.DataParallel):
            module = module.module
        first = next(tensors((args, kwargs)), None)
        parameter = next(module.parameters(), None)
        if first is None or parameter is None or type(module).__module__.startswith("placer."):
            return  # a loss, a metric, the speed probe: no model of the script
        if module in self._inside or first.is_meta or type(first).__module__.startswith("torch._"):
            return  # a part of a model, or a tensor without values, of one who asks for shapes
        seen = self._known.get(module) or self._new(module, str(parameter.device))
        trains = module.training or seen.steps > 0
        learning = trains and torch.is_grad_enabled() and any(p.requires_grad for p in module.parameters())
        shapes = tuple((tensor.shape, tensor.dtype) for tensor in tensors((args, kwargs)))
        found = seen.inputs.get((learning, shapes))
        if found is None:
            kind = first.device.type
            autocast = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
            found = seen.inputs[learning, shapes] = Inputs(*meta_inputs((args, kwargs)), autocast=autocast)
        elif seen.last_tensor is not None and seen.last_tensor() is first:
            found.same += 1
        found.count += 1
        seen.last_tensor = weakref.ref(first)

    def _new(self, module: nn.Module, device: str) -> SeenModel:
        """A model that was not seen before, or one more of an architecture that was."""
        key = (type(module), device, *((n, p.shape, p.dtype, p.requires_grad) for n, p in module.named_parameters()))
        if key not in self._alike:
            seen = self._alike[key] = SeenModel(type(module).__name__, device, weakref.ref(module), alike=0)
            try:
                seen.copy = meta_model(module)
            except TraceError as error:
                seen.refused = first_line(error)
        seen = self._alike[key]
        seen.alike += 1
        seen.module = weakref.ref(module)
        self._known[module] = seen
        self._inside.update(part for part in module.modules() if part is not module)
        return seen

    @_harmless
    def _stepped(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        """An optimizer has made a step. Its first one says what it trains, and that there may be new models to see."""
        if optimizer not in self._trained:
            own = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
            trained = self._trained[optimizer] = []
            for module, seen in list(self._known.items()):
                if not own.isdisjoint(map(id, module.parameters())):
                    trained.append(seen)
                    if seen.optimizer is None and seen.copy is not None:
                        seen.optimizer = meta_optimizer(optimizer, module, seen.copy)
            self.look()
        now = self._clock()
        for seen in self._trained[optimizer]:
            if seen.last_step is not None:
                seen.between.append(now - seen.last_step)
            seen.last_step = now
            seen.steps += 1
            seen.looked_steps += bool(self._looking)
