"""Watches the models of a script: what they run on, how often and how long, and what one step of each is.

In the script's process only names, shapes and times are noted, when a model is called and when an optimizer has made
a step: no op runs, and nothing is copied. A step is traced as ``placer.choose`` traces it: in a forked child, on the
script's own objects, of which nothing changes and only the trace comes back. That is done once for each architecture,
at its first call; the script waits for it, a tenth of a second as a rule, which is no part of what is measured.

Calls are looked at until there have been enough, and again after the first step of each optimizer (see ``calls``).
A hook on optimizers stays, which notes when a step has ended. Nothing is done in processes that are forked.
"""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
import traceback
import weakref
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from itertools import islice
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.optim.optimizer import register_optimizer_step_post_hook

from placer.errors import TraceError, first_line
from placer.nest import tensors
from placer.run import calls
from placer.tracing import Trace, trace
from placer.workload import Data, Workload, unwrap

#: Calls of whole models that are looked at.
FIRST_CALLS = 100
#: Times between steps that are kept, the newest: enough for a median.
RECENT = 1000
#: The share of runs, or of a turn of the loop, that stands for all of them.
MOSTLY = 0.9
#: Architectures that are traced: the script waits for each, and nobody reads a longer table.
MOST_MODELS = 30


@dataclass
class Inputs:
    """One shape of inputs: how often it came, how often as the same tensor as the time before, and a step on it.

    ``learning`` tells whether gradients were wanted, ``plain`` whether all of it is tensors, by position. ``workload``
    holds nothing of the script's. Without a ``trace``, ``refused`` says why there is none, once that was tried.
    """

    learning: bool
    autocast: torch.dtype | None
    plain: bool
    count: int = 0
    same: int = 0
    workload: Workload | None = None
    trace: Trace | None = None
    refused: str = ""

    @property
    def data(self) -> Data:
        """A tensor that comes again and again lives where the model is; others are new batches."""
        return "device" if self.count > 1 and self.same == self.count - 1 else "host"

    @property
    def tried(self) -> bool:
        """Whether a step on them was traced, or could not be."""
        return self.trace is not None or bool(self.refused)


@dataclass
class Step:
    """The calls of a model since the last step of its optimizer, and when the last one was that learns."""

    called: float | None = None
    learning: int = 0
    others: int = 0


@dataclass
class Trained:
    """What an optimizer trains, and how many steps it has made; ``noticed`` is how many models were known by then."""

    models: list[WatchedModel] = field(default_factory=list)
    steps: int = 0
    noticed: int = 0


@dataclass
class WatchedModel:
    """A model, or several of one architecture (``alike``), and what they ran on.

    ``module`` is the newest of them, if it still lives. ``inputs`` are by whether gradients were wanted, and the
    shapes. ``steps`` are those of its optimizers (``looked_steps``: while calls were looked at), ``ends`` when the
    newest of them ended; ``recorded_steps`` is how many there were when the history was told of them. Of steps that
    were looked at, ``loop`` has the seconds from one to the next, and ``inside`` how many of them went by from a call
    of the model to the end of its optimizer's step.
    """

    name: str
    device: str
    module: weakref.ref[nn.Module]
    alike: int = 0
    optimizer: weakref.ref[torch.optim.Optimizer] | None = None
    inputs: dict[Hashable, Inputs] = field(default_factory=dict)
    steps: int = 0
    looked_steps: int = 0
    recorded_steps: int = 0
    ends: deque[float] = field(default_factory=lambda: deque(maxlen=RECENT + 1))
    loop: list[float] = field(default_factory=list)
    inside: list[float] = field(default_factory=list)
    step: Step = field(default_factory=Step)
    last_tensor: weakref.ref[Tensor] | None = None

    @property
    def mode(self) -> str:
        """A model that was ever trained is asked about for training."""
        return "train" if any(inputs.learning for inputs in self.inputs.values()) else "infer"

    @property
    def usual(self) -> Inputs:
        """The inputs it ran on most, of those with a trace if there is one."""
        learning = self.mode == "train"
        of_mode = [inputs for inputs in self.inputs.values() if inputs.learning == learning]
        return max(of_mode, key=lambda inputs: (inputs.trace is not None, inputs.count))

    @property
    def runs_per_step(self) -> int:
        """How often it ran for one step of its optimizer."""
        runs = sum(inputs.count for inputs in self.inputs.values() if inputs.learning)
        return max(round(runs / self.looked_steps), 1) if self.looked_steps else 1

    @property
    def between(self) -> list[float]:
        """Seconds from one of the newest steps to the next."""
        return [after - before for before, after in zip(self.ends, islice(self.ends, 1, None), strict=False)]

    @property
    def seconds(self) -> float | None:
        """Median wall time from one step of its optimizer to the next; None where there were not two."""
        return median(self.between) if len(self.ends) > 1 else None

    @property
    def real_steps(self) -> list[float]:
        """Seconds of steps as ``placer.choose`` prices them, on the usual inputs; none where the loop does not tell.

        On the CPU they are those from a call of the model to the end of its optimizer's step. An accelerator may still
        be at work then: there it is a whole turn of the loop that counts, if nearly all of it goes by in the model.
        """
        learning = sum(inputs.count for inputs in self.inputs.values() if inputs.learning)
        if not self.inside or self.runs_per_step > 1 or self.usual.count < MOSTLY * learning:
            return []
        if self.device == "cpu":
            return self.inside
        return self.between if self.seconds and median(self.inside) >= MOSTLY * self.seconds else []

    def wants_trace(self, inputs: Inputs) -> bool:
        """Whether a step on these inputs says more than those that were traced."""
        if inputs.tried or (self.mode == "train" and not inputs.learning):
            return False
        tried = [other.count for other in self.inputs.values() if other.tried and other.learning == inputs.learning]
        return inputs.count > max(tried, default=0)


class Watcher:
    """What ran in this process: ``models``, and ``failure`` where watching had to end."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.failure: str | None = None
        #: Whether there were models of more architectures than are traced.
        self.more = False
        self._clock = clock
        self._waited = 0.0
        self._process = os.getpid()
        self._busy = threading.Lock()
        self._known: weakref.WeakKeyDictionary[nn.Module, WatchedModel] = weakref.WeakKeyDictionary()
        self._inside: weakref.WeakSet[nn.Module] = weakref.WeakSet()
        self._number_noticed = 0
        self._trained: weakref.WeakKeyDictionary[torch.optim.Optimizer, Trained] = weakref.WeakKeyDictionary()
        self._alike: dict[Hashable, WatchedModel] = {}
        self._counting: Any = None
        self._left = 0

    @property
    def models(self) -> list[WatchedModel]:
        """In the order in which they were seen first."""
        return list(self._alike.values())

    def start(self) -> None:
        """Watch from now on. Raises NotImplementedError with a torch that placer does not know."""
        calls.watch(self)
        self._counting = register_optimizer_step_post_hook(self._stepped)
        self.look()

    def look(self) -> None:
        """Look at the next calls of whole models."""
        if self._counting is not None:
            for watched in self.models:
                watched.step = Step()
            self._left = FIRST_CALLS
            calls.look(self)

    def stop(self) -> None:
        """Leave torch as it was; what was seen stays."""
        calls.unwatch(self)
        if self._counting is not None:
            self._counting.remove()
            self._counting = None

    def end(self, why: str) -> None:
        """Stop before the script has ended."""
        self.failure = why
        self.stop()

    # --- calls --------------------------------------------------------------------------------------------------------

    def called(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A model is about to run. Others that run at the same time are not looked at, nor is a forked process."""
        if os.getpid() != self._process or not self._busy.acquire(blocking=False):
            return
        try:
            self._look_at(module, args, kwargs)
            self._left -= 1
            if self._left <= 0:
                calls.look_away(self)
        except Exception as error:  # the boundary: nothing of ours may reach the script
            if _is_of_a_signal(error):
                raise
            self.end(f"{type(error).__name__}: {first_line(error)}")
        finally:
            self._busy.release()

    def _look_at(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if isinstance(module, nn.DataParallel):
            module = module.module
        with torch._C.DisableTorchFunction():  # not even a mode of the script's sees that a shape is read
            watched = self._noticed(module, args, kwargs)
            if watched is None:
                return
            inputs = _inputs(watched, module, args, kwargs)
        if watched.wants_trace(inputs):
            self._trace(watched, inputs, module, args, kwargs)
        if inputs.learning:
            watched.step.called = self._now()
            watched.step.learning += 1
        else:
            watched.step.others += 1

    def _noticed(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> WatchedModel | None:
        """The model that is called, if it is one of the script's."""
        first = next(tensors((args, kwargs)), None)
        parameter = next(module.parameters(), None)
        if first is None or parameter is None or type(module).__module__.startswith("placer."):
            return None  # a loss, a metric, the speed probe: no model of the script
        if module in self._inside or first.is_meta or type(first).__module__.startswith("torch._"):
            return None  # a part of a model, or a tensor without values, of one who asks for shapes
        if "_is_replica" in vars(module):
            return None  # one of nn.DataParallel's
        return self._known.get(module) or self._new(module, str(parameter.device))

    def _new(self, module: nn.Module, device: str) -> WatchedModel | None:
        """A model that was not seen before, or one more of an architecture that was."""
        kind: Any = type(module)
        key = (kind, device, *(_described(name, p) for name, p in module.named_parameters()))
        watched = self._alike.get(key)
        if watched is None:
            if len(self._alike) >= MOST_MODELS:
                self.more = True
                return None
            watched = self._alike[key] = WatchedModel(type(unwrap(module)).__name__, device, weakref.ref(module))
        watched.alike += 1
        watched.module = weakref.ref(module)
        self._known[module] = watched
        self._inside.update(part for part in module.modules() if part is not module)
        self._number_noticed += 1
        return watched

    # --- steps --------------------------------------------------------------------------------------------------------

    @calls.unseen_by_compiler
    def _stepped(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        """An optimizer has made a step. In a loop that nobody looks at any more, only that is noted."""
        try:
            trained = self._trained.get(optimizer)
            if trained is None or not trained.models or self._left > 0:
                trained = self._look_at_step(optimizer, trained)
            now = self._now()
            for watched in trained.models:
                watched.steps += 1
                watched.ends.append(now)
            trained.steps += 1
        except Exception as error:  # noqa: BLE001 - the boundary: nothing of ours may reach the script
            self.end(f"{type(error).__name__}: {first_line(error)}")

    def _look_at_step(self, optimizer: torch.optim.Optimizer, trained: Trained | None) -> Trained:
        """What an optimizer trains, which has made a step; none of it in a forked process."""
        if os.getpid() != self._process:
            return Trained()
        if trained is None:  # it may have a model that nobody has looked at
            trained = self._trained[optimizer] = Trained()
            self.look()
        if not trained.models and trained.noticed < self._number_noticed:
            self._match(optimizer, trained)
        for watched in trained.models:
            self._time_inside(watched)
        return trained

    def _match(self, optimizer: torch.optim.Optimizer, trained: Trained) -> None:
        """Find the models that an optimizer trains."""
        trained.noticed = self._number_noticed
        parameters = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
        for module, watched in list(self._known.items()):
            if parameters.isdisjoint(map(id, module.parameters())):
                continue
            trained.models.append(watched)
            watched.steps += trained.steps
            if watched.optimizer is None:  # it was not there when the model was called
                watched.optimizer = weakref.ref(optimizer)
                for inputs in watched.inputs.values():
                    if inputs.learning:
                        inputs.trace, inputs.refused = None, ""

    def _time_inside(self, watched: WatchedModel) -> None:
        """How much of the step that has just ended went by in the model, where all of it was looked at."""
        step, watched.step = watched.step, Step()
        if self._left <= 0:
            return
        watched.looked_steps += 1
        if watched.ends and step.called is not None and not step.others:
            now = self._now()
            whole = now - watched.ends[-1]
            watched.loop.append(whole)
            watched.inside.append(min(step.learning * (now - step.called), whole))

    def _now(self) -> float:
        """The time, as it would be if nobody had traced."""
        return self._clock() - self._waited

    # --- traces -------------------------------------------------------------------------------------------------------

    def _trace(
        self, watched: WatchedModel, inputs: Inputs, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """Trace a step of a model on what it is called with. Raises nothing of the step's."""
        began = self._clock()
        optimizer: Any = None
        if inputs.learning:
            optimizer = watched.optimizer() if watched.optimizer is not None else _optimizer_of(module)
            if optimizer is not None:
                watched.optimizer, optimizer = weakref.ref(optimizer), _part_for(optimizer, module)
        workload = Workload(
            model=module,
            modules=(module,),
            args=args,
            kwargs=kwargs,
            autocast=inputs.autocast,
            mode="train" if inputs.learning else "infer",
            optimizer=optimizer or ("adam" if inputs.learning else None),
        )
        try:
            inputs.trace = trace(workload)
        except TraceError as error:
            inputs.refused = first_line(error)
        inputs.workload = replace(
            workload, model=_Named(watched.name), modules=(), args=(), kwargs={}, optimizer=workload.optimizer_name
        )
        self._waited += self._clock() - began


class _Named:
    """Stands for a model that is not kept."""

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __call__(self) -> None:
        raise TraceError(f"{self.__name__} is gone")


def _is_of_a_signal(error: Exception) -> bool:
    """Whether a handler of the script's raised it (a time limit, say), which may happen wherever the script waits."""
    handlers = {getattr(signal.getsignal(number), "__code__", None) for number in signal.valid_signals()}
    return any(frame.f_code in handlers for frame, _ in traceback.walk_tb(error.__traceback__))


def _described(name: str, parameter: nn.Parameter) -> Hashable:
    """What tells an architecture from another."""
    return name, None if is_lazy(parameter) else parameter.shape, parameter.dtype, parameter.requires_grad


def _inputs(watched: WatchedModel, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Inputs:
    """Those of a call, counted."""
    batch = list(tensors((args, kwargs)))
    first = batch[0]
    trains = module.training or watched.steps > 0
    learning = trains and torch.is_grad_enabled() and any(p.requires_grad for p in module.parameters())
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


def _optimizer_of(module: nn.Module) -> torch.optim.Optimizer | None:
    """The optimizer that has most of the weights of a model, of all that are there; None where there is none yet."""
    parameters = {id(parameter) for parameter in module.parameters()}
    best, most = None, 0
    for candidate in gc.get_objects():
        if not issubclass(type(candidate), torch.optim.Optimizer):
            continue
        groups = vars(candidate).get("param_groups", ())
        count = sum(id(parameter) in parameters for group in groups for parameter in group["params"])
        if count > most:
            best, most = candidate, count
    return best


def _part_for(optimizer: torch.optim.Optimizer, module: nn.Module) -> torch.optim.Optimizer:
    """The optimizer itself, or one like it for its part of a model where it trains others as well.

    That one shares its settings and state. It lacks the ``step`` that a scheduler wrapped, which is the original's.
    """
    parameters = {id(parameter) for parameter in module.parameters()}
    groups = []
    for group in optimizer.param_groups:
        part = [parameter for parameter in group["params"] if id(parameter) in parameters]
        groups.append({**group, "params": part})
    if [len(group["params"]) for group in groups] == [len(group["params"]) for group in optimizer.param_groups]:
        return optimizer
    partial = object.__new__(type(optimizer))
    partial.__dict__.update({name: value for name, value in vars(optimizer).items() if name != "step"})
    partial.param_groups = groups
    return partial
