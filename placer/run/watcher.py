"""Watches the models of a script: what they run on, how often and how long, and what one step of each is.

In the script's process only names, shapes and times are noted, when a model is called and when an optimizer has made
a step: no op runs, and nothing is copied. A step is traced as ``placer.choose`` traces it: in a forked child, on the
script's own objects, of which nothing changes and only the trace comes back. That is done once for each architecture,
at its first call, and once more when its optimizer is known; the script waits for it, a tenth of a second as a rule.
What it takes to look at a call is no part of what is measured.

Calls are looked at until there have been enough, and again after the first step of each optimizer (see ``calls``).
A hook on optimizers stays, which notes when a step has ended. Nothing is done in processes that are forked.
"""

from __future__ import annotations

import signal
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.optim.optimizer import register_optimizer_step_post_hook

from placer.errors import TraceError, first_line
from placer.machine import Moment, children_seconds, moment, taken_share
from placer.nest import tensors
from placer.run import calls
from placer.run.loaders import Loaders
from placer.run.watched import Inputs, Step, Trained, WatchedModel
from placer.tracing import Trace, trace
from placer.workload import Workload, optimizer_classes, unwrap

#: Calls of whole models that are looked at.
FIRST_CALLS = 100
#: Seconds of a trace after which the script does not wait for a second one, of a larger batch.
QUICK = 0.5
#: Architectures that are traced: the script waits for each, and nobody reads a longer table.
MOST_MODELS = 30


class Watcher:
    """What ran in this process: ``models``, and ``failure`` where watching had to end."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.failure: str | None = None
        #: Whether there were models of more architectures than are traced.
        self.more = False
        self._clock = clock
        self._waited = 0.0
        self.loaders = Loaders(self._now, clock)
        #: Seconds from a call of a model that learns to the next step of an optimizer, but for waits: each second once.
        self._training = 0.0
        self._began: tuple[float, float] | None = None
        self._busy = threading.Lock()
        self._start: Moment | None = None
        self._known: weakref.WeakKeyDictionary[nn.Module, WatchedModel] = weakref.WeakKeyDictionary()
        self._parts: weakref.WeakKeyDictionary[nn.Module, tuple[WatchedModel, str]] = weakref.WeakKeyDictionary()
        #: By the identity of their optimizers. A new optimizer with an old one's identity has its own.
        self._trained: dict[int, Trained] = {}
        self._alike: dict[Hashable, WatchedModel] = {}
        self._counting: Any = None
        self._left = 0

    @property
    def models(self) -> list[WatchedModel]:
        """In the order in which they were seen first."""
        return list(self._alike.values())

    @property
    def others_share(self) -> float:
        """Share of the cores' time since ``start`` that other programs had, 0 to 1; 0 where nobody can tell."""
        return 0.0 if self._start is None else taken_share(self._start, _with_children(moment()))

    def start(self) -> None:
        """Watch from now on. Raises NotImplementedError with a torch that placer does not know."""
        self._start = _with_children(moment())
        calls.watch()
        self.loaders.watch()
        self._counting = register_optimizer_step_post_hook(self._stepped)
        self.look()

    def look(self) -> None:
        """Look at the next calls of whole models."""
        if self._counting is not None:
            for watched in self.models:
                watched.step = Step()
            self._left = FIRST_CALLS
            calls.listen(self._called)

    def stop(self) -> None:
        """Leave torch as it was; what was seen stays."""
        if self._counting is not None:
            calls.unwatch()
            self.loaders.unwatch()
            self._counting.remove()
            self._counting = None

    def _end(self, error: Exception) -> None:
        """Stop before the script has ended. What a handler of a signal raised goes on to the script."""
        if _is_of_a_signal(error):
            raise error
        self.failure = f"{type(error).__name__}: {first_line(error)}"
        self.stop()

    # --- calls --------------------------------------------------------------------------------------------------------

    def _called(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A model is about to run. Others that run at the same time are not looked at, nor is a forked process."""
        if self.loaders.forked or not self._busy.acquire(blocking=False):
            return
        began = self._clock()
        try:
            self._look_at(module, args, kwargs, began - self._waited)
            self._left -= 1
            if self._left <= 0:
                calls.listen(None)
        except Exception as error:  # noqa: BLE001 - the boundary: nothing of ours may reach the script
            self._end(error)
        finally:
            self._waited += self._clock() - began
            self._busy.release()

    def _look_at(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], called: float) -> None:
        """Note a call that was made at the time ``called``."""
        if isinstance(module, nn.DataParallel):
            module = module.module
        with torch._C.DisableTorchFunction():  # not even a mode of the script's sees that a shape is read
            watched = self._noticed(module, args, kwargs)
            if watched is None:
                return
            inputs = _inputs(watched, module, args, kwargs)
        batches = self.loaders.batches
        watched.batches = (watched.batches[0] or batches, batches)
        watched.workers = self.loaders.workers
        if watched.wants_trace(inputs):
            began = self._clock()
            workload = _trace(watched, inputs, module, args, kwargs)
            if inputs.trace is not None and inputs.plain and self._clock() - began < QUICK:
                inputs.larger = _trace_larger(workload)
        if inputs.learning:
            watched.step.called = called
            watched.step.learning += 1
            self._began = self._began or (called, self.loaders.waited)
        else:
            watched.step.others += 1

    def _noticed(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> WatchedModel | None:
        """The model that is called, if it is one of the script's."""
        first = next(tensors((args, kwargs)), None)
        parameter = next(module.parameters(), None)
        if first is None or parameter is None or type(module).__module__.startswith("placer."):
            return None  # a loss, a metric, the speed probe: no model of the script
        if first.is_meta or type(first).__module__.startswith("torch._"):
            return None  # a tensor without values, of one who asks for shapes
        whole, name = self._parts.get(module, (None, ""))
        if whole is not None and (whole.mode == "train" or not _learns(module, trained=whole.steps > 0)):
            return None  # a part of a model; one that learns where the whole never does is a model itself
        if "_is_replica" in vars(module):
            return None  # one of nn.DataParallel's
        return self._known.get(module) or self._new(module, str(parameter.device), name)

    def _new(self, module: nn.Module, device: str, name: str) -> WatchedModel | None:
        """A model that was not seen before, or one more of an architecture that was; ``name``: that of a part."""
        kind: Any = type(module)
        key = (kind, device, name, *(_described(name, p) for name, p in module.named_parameters()))
        watched = self._alike.get(key)
        if watched is None:
            if len(self._alike) >= MOST_MODELS:
                self.more = True
                return None
            name = name or type(unwrap(module)).__name__
            watched = self._alike[key] = WatchedModel(name, device, weakref.ref(module))
        watched.alike += 1
        watched.module = weakref.ref(module)
        self._known[module] = watched
        for path, part in module.named_modules():
            if part is not module and part not in self._parts:
                self._parts[part] = (watched, f"{watched.name}.{path}")
        return watched

    # --- steps --------------------------------------------------------------------------------------------------------

    @calls.unseen_by_compiler
    def _stepped(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        """An optimizer has made a step. In a loop that nobody looks at any more, only that is noted."""
        if self.loaders.forked:
            return
        try:
            trained = self._trained.get(id(optimizer))
            if trained is None or trained.optimizer() is not optimizer:  # it may have a model that nobody looked at
                trained = self._trained[id(optimizer)] = Trained(weakref.ref(optimizer))
                self.look()
            if self._left > 0 and trained.known < len(self._known):
                self._match(optimizer, trained)
            now, waited = self._now(), self.loaders.waited
            if self.loaders.newest is not None:
                self.loaders.newest.stepped(now)
            if self._began is not None:
                self._training += now - self._began[0] - (waited - self._began[1])
                self._began = None
            for watched in trained.models:
                watched.stepped(now, waited, self._training, looked=self._left > 0)
            trained.steps += 1
        except Exception as error:  # noqa: BLE001 - the boundary: nothing of ours may reach the script
            self._end(error)

    def _match(self, optimizer: torch.optim.Optimizer, trained: Trained) -> None:
        """Find the models that an optimizer trains, and that it was not known to train."""
        parameters = _trained_by(optimizer)
        trained.known = len(self._known)
        matched = {id(watched) for watched in trained.models}
        for module, watched in list(self._known.items()):
            if id(watched) not in matched and not parameters.isdisjoint(map(id, module.parameters())):
                matched.add(id(watched))
                trained.models.append(watched)
                watched.steps += trained.steps
                watched.trained_by(optimizer)

    def _now(self) -> float:
        """The time, as it would be if nobody had looked at a call."""
        return self._clock() - self._waited


def _with_children(now: Moment) -> Moment:
    """The moment, with what the script's other processes have computed as its own: its workers are no other program."""
    return replace(now, process=now.process + children_seconds())


def _is_of_a_signal(error: Exception) -> bool:
    """Whether a handler of the script's raised it (a time limit, say), which may happen wherever the script waits."""
    handlers = {getattr(signal.getsignal(number), "__code__", None) for number in signal.valid_signals()}
    return any(frame.f_code in handlers for frame, _ in traceback.walk_tb(error.__traceback__))


def _described(name: str, parameter: nn.Parameter) -> Hashable:
    """What tells an architecture from another."""
    return name, None if is_lazy(parameter) else parameter.shape, parameter.dtype, parameter.requires_grad


def _learns(module: nn.Module, *, trained: bool) -> bool:
    """Whether gradients are wanted of a call; ``trained``: an optimizer makes steps on it."""
    wanted = (module.training or trained) and torch.is_grad_enabled()
    return wanted and any(parameter.requires_grad for parameter in module.parameters())


def _inputs(watched: WatchedModel, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Inputs:
    """Those of a call, counted."""
    batch = list(tensors((args, kwargs)))
    first = batch[0]
    learning = _learns(module, trained=watched.steps > 0)
    key = (learning, tuple((tensor.shape, tensor.dtype) for tensor in batch))
    inputs = watched.inputs.get(key)
    if inputs is None:
        kind = first.device.type
        autocast = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
        plain = not kwargs and all(isinstance(value, Tensor) for value in args)
        inputs = watched.inputs[key] = Inputs(learning, autocast, plain)
    elif watched.last_tensor is not None and watched.last_tensor() is first:
        inputs.same += 1
    inputs.count += 1
    watched.last_tensor = weakref.ref(first)
    return inputs


def _trace(
    watched: WatchedModel, inputs: Inputs, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Workload:
    """Trace a step of a model on what it is called with: the step. Raises nothing of the step's."""
    optimizer = watched.optimizer() if watched.optimizer is not None else None
    workload = Workload(
        model=module,
        modules=(module,),
        args=args,
        kwargs=kwargs,
        autocast=inputs.autocast,
        mode="train" if inputs.learning else "infer",
        optimizer=_alone(optimizer, module) if inputs.learning else None,
    )
    try:
        inputs.trace = trace(workload)
    except TraceError as error:
        inputs.refused = first_line(error)
    inputs.workload = replace(
        workload, model=_Named(watched.name), modules=(), args=(), kwargs={}, optimizer=workload.optimizer_name
    )
    return workload


def _trace_larger(workload: Workload) -> Trace | None:
    """The step with the batch that advice asks about; None where it has none, or a step on it fails."""
    from placer.decision import LARGER, batch_size, with_batch

    with torch._C.DisableTorchFunction():  # not even a mode of the script's sees that a shape is made
        size = batch_size(workload)
        step = None if size is None else with_batch(workload, size * LARGER)
    if step is None:
        return None
    try:
        larger = trace(step)
    except TraceError:
        return None
    return None if larger.real else larger


def _trained_by(optimizer: torch.optim.Optimizer) -> set[int]:
    """The ids of the parameters that an optimizer trains."""
    parameters: set[int] = set()
    for group in optimizer.param_groups:
        parameters.update(map(id, group["params"]))
    return parameters


def _alone(optimizer: torch.optim.Optimizer | None, module: nn.Module) -> torch.optim.Optimizer | str:
    """The optimizer of a model: by its name where it trains other models too, and Adam where nobody knows better."""
    if optimizer is None:
        return "adam"
    parameters, name = {id(parameter) for parameter in module.parameters()}, type(optimizer).__name__.lower()
    others = not _trained_by(optimizer) <= parameters
    return name if others and name in optimizer_classes() else optimizer


class _Named:
    """Stands for a model that is not kept."""

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __call__(self) -> None:
        raise TraceError(f"{self.__name__} is gone")
