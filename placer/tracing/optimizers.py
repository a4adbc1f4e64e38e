"""The optimizer's part of a step: the ops that its update runs, or one call per tensor where that is what is measured.

A calibration measures the update of nine optimizers of torch whole, as their loops over tensors run it by default. Such
an update is one call per parameter tensor with a gradient. Any other is traced: other optimizers, other settings, the
``foreach`` and ``fused`` forms on the CPU. On accelerators, where the nine were measured in all their forms, they are
one call per tensor always. Of LBFGS, all evaluations are counted.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import sys
from collections.abc import Callable, Hashable, Iterator
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from placer.errors import TraceError, first_line
from placer.nest import distinct
from placer.tracing import values
from placer.tracing.fused_ops import DeviceKind
from placer.tracing.isolation import replaced
from placer.tracing.python_calls import Uncounted
from placer.tracing.recorder import MetaRecorder, Recorder
from placer.tracing.trace_data import ACCELERATORS, OpCall, OptimizerFlag, TensorSpec, Trace, dense, spec_of

#: Settings that change what an update computes. ``momentum`` and ``weight_decay`` are recorded as on or off.
_SWITCHES = ("momentum", "weight_decay", "amsgrad", "centered", "nesterov", "maximize", "capturable", "differentiable")
_FORMS = ("foreach", "fused")

#: The optimizers of torch whose update a calibration measures whole, and how many tensors of a parameter's size their
#: state has, besides what the settings add.
_STATE_TENSORS = {
    "Adam": 2, "AdamW": 2, "NAdam": 2, "RAdam": 2, "Adamax": 2, "Adadelta": 2, "Adagrad": 1, "RMSprop": 1, "SGD": 0,
}  # fmt: skip
_STEP_BYTES = 4  # the step counter of optimizers that keep one per parameter


def _class_named(name: str) -> Any:
    classes = {n.lower(): c for n, c in vars(torch.optim).items() if isinstance(c, type)}
    if name.lower() not in classes:
        raise TraceError(f"optimizer {name!r} is not in torch.optim")
    return classes[name.lower()]


def _settings(settings: dict[str, Any]) -> tuple[Hashable, ...]:
    args: list[Hashable] = [(name, settings[name]) for name in _FORMS if name in settings]
    args += [(name, bool(settings[name])) for name in _SWITCHES if name in settings]
    return tuple(args)


def _state_bytes(name: str, parameter: TensorSpec, settings: dict[str, Any]) -> int:
    """Bytes of state of one parameter; of an optimizer that is not among the measured ones, as much as Adam's."""
    copies = _STATE_TENSORS.get(name, 2) + bool(settings.get("amsgrad")) + bool(settings.get("centered"))
    if name in ("SGD", "RMSprop"):
        copies += bool(settings.get("momentum"))
    if name == "LBFGS":
        copies = 2 * int(settings.get("history_size") or 100) + 2
    return copies * parameter.stored_bytes + (_STEP_BYTES if name not in ("SGD", "LBFGS") else 0)


def device_flags(optimizer: torch.optim.Optimizer) -> Iterator[OptimizerFlag]:
    """The flags of an optimizer of torch, or of one made from it, that not every device has an update for."""
    names = [kind.__name__ for kind in type(optimizer).__mro__ if kind.__module__.startswith("torch.optim.")]
    if names[0] == "Optimizer":  # its flags mean what its own code says
        return
    for flag in ("capturable", "fused"):
        if any(group.get(flag) for group in optimizer.param_groups):
            yield type(optimizer).__name__, flag


class Updates:
    """Records the updates of a step on a ``kind`` of device."""

    def __init__(self, recorder: Recorder, kind: DeviceKind) -> None:
        self.recorder, self.kind = recorder, kind
        self.names: list[str] = []
        self.notes: list[str] = []
        self.stepped: list[torch.optim.Optimizer] = []
        self._flags: dict[OptimizerFlag, None] = {}
        self._state_bytes: dict[Any, int] = {}
        self._running: list[_Running] = []
        self._making_state = False
        self._capturable: list[dict[str, Any]] = []

    @property
    def state_bytes(self) -> int:
        """Bytes of state of all optimizers."""
        return sum(self._state_bytes.values())

    @property
    def flags(self) -> tuple[OptimizerFlag, ...]:
        """The flags of all optimizers that not every device has an update for."""
        return tuple(self._flags)

    def end_step(self, optimizer: str | torch.optim.Optimizer, model: nn.Module, evaluate: Callable[[], Any]) -> None:
        """The update of a model by what a name stands for, or by an instance, inside ``watching``.

        ``evaluate`` computes the loss and its gradients again, for a step that does not run without a closure. Raises
        TraceError for an unknown name, and what ``evaluate`` raises.
        """
        if isinstance(optimizer, str):
            kind, updated = _class_named(optimizer), [p for p in model.parameters() if p.requires_grad]
            if not updated:  # an input of the model may be what is trained
                self.names.append(kind.__name__)
                return
            with self.recorder.recording(False):
                made: torch.optim.Optimizer = kind(updated)
            optimizer = made
        if self._is_whole(optimizer) or isinstance(optimizer, torch.optim.LBFGS):
            self._record(optimizer)
            return
        if isinstance(self.recorder, MetaRecorder):
            self.recorder.values.floats = True  # counters of steps
            with self.recorder.recording(False):
                values.without_values(t for t in distinct(dict(optimizer.state)) if t.dim() > 0)
        start, name = len(self.recorder.log), type(optimizer).__name__
        try:
            self._step(optimizer, evaluate)
        except TraceError:
            raise
        except Exception as error:  # a user's step() may raise anything; Adam's cost is a fair guess
            self._running.clear()
            failed = f"{name}.step() could not be traced ({type(error).__name__}: {first_line(error)})"
            if not self.recorder.real:
                raise values.NeedsRealRun(failed) from error
            self.recorder.log.rewind(start)
            self.notes.append(f"{failed}; treated like Adam")
            self._record(optimizer)

    def _step(self, optimizer: torch.optim.Optimizer, evaluate: Callable[[], Any]) -> None:
        """Step without a closure; with one, where that fails and the optimizer can take it."""
        start, functions = len(self.recorder.log), self.recorder.python_calls
        entered = functions.count
        try:
            with functions.counting():
                optimizer.step()
        except TraceError:
            raise
        except Exception:  # it may have missed a closure, and say so in any way
            if "closure" not in inspect.signature(type(optimizer).step).parameters:
                raise
            self._running.clear()
            self.recorder.log.rewind(start)
            functions.count = entered

            def closure() -> Any:
                optimizer.zero_grad()
                return evaluate()

            with functions.counting():
                optimizer.step(closure)

    def _is_whole(self, optimizer: torch.optim.Optimizer) -> bool:
        """Whether the update is one call per tensor: as it is measured, or one that accelerators know in all forms."""
        if not _is_torchs(optimizer):
            return False
        if self.kind.name != "cpu" or all(_as_measured(group, type(optimizer)) for group in optimizer.param_groups):
            return True
        self.kind.differs(ACCELERATORS)
        return False

    def _record(self, optimizer: torch.optim.Optimizer) -> None:
        """Record an update as a whole: one call for every parameter that has a gradient."""
        recorder, op = self.recorder, f"optimizer::{type(optimizer).__name__}"
        with recorder.recording(False):
            for group in optimizer.param_groups:
                args = _settings(group)
                for parameter in group["params"]:
                    if parameter.grad is not None:
                        updated = parameter if parameter.grad.layout is torch.strided else parameter.grad
                        layer = recorder.layers.owner(parameter)
                        recorder.log.record(op, (spec_of(updated),), (), args, in_place=True, layer=layer)
            self._keep(optimizer)

    def _keep(self, optimizer: torch.optim.Optimizer) -> None:
        """Count the state of an optimizer: that which it has after a step, or will have."""
        name = type(optimizer).__name__
        if not self._running and name not in self.names:  # of those that step inside another, that one is named
            self.names.append(name)
        self._flags.update(dict.fromkeys(device_flags(optimizer)))
        if self._is_whole(optimizer) or not optimizer.state:
            updated: list[tuple[torch.Tensor, dict[str, Any]]] = []
            for group in optimizer.param_groups:
                updated += [(parameter, group) for parameter in group["params"] if parameter.grad is not None]
            nbytes = sum(_state_bytes(name, spec_of(parameter), group) for parameter, group in updated)
        else:
            nbytes = sum(spec_of(t).stored_bytes for t in distinct(dict(optimizer.state)))
        self._state_bytes[optimizer] = nbytes

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Follow the steps of all optimizers. Raises TraceError where the body goes on after one that failed."""
        handles = [register_optimizer_step_pre_hook(self._before), register_optimizer_step_post_hook(self._after)]
        module: Any = sys.modules[torch.optim.Optimizer.__module__]
        supported = module._get_fused_kernels_supported_devices
        try:
            with replaced(module, supported.__name__, lambda: [*supported(), "meta"]):
                yield
        finally:
            for handle in handles:
                handle.remove()
        if self._running:
            name = type(self._running[-1].optimizer).__name__
            raise TraceError(f"the step function goes on after {name}.step() failed")

    def _before(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> Any:
        recorder = self.recorder
        if recorder.paused or self._making_state:
            return None
        with Uncounted():
            if not self._running:
                recorder.log.end_phase("optimizer")
            for group in optimizer.param_groups:
                if group.get("capturable"):  # the CPU has no such update: what the step computes is the same without
                    group["capturable"] = False
                    self._capturable.append(group)
            whole = self._is_whole(optimizer)
            arguments = [*args[1:], *kwargs.values()]
            if not whole and not optimizer.state and not any(map(callable, arguments)):
                self._make_state(optimizer, args[1:], kwargs)
            self._running.append(_Running(optimizer, whole))
            if not whole:
                return None
            recorder.paused = recorder.python_calls.paused = True
            return tuple(self._recorded(a) for a in args), {k: self._recorded(v) for k, v in kwargs.items()}

    def _make_state(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        """Step once, unrecorded: a first step makes state, which no later one does."""
        log, functions = self.recorder.log, self.recorder.python_calls
        calls, entered, peak = len(log), functions.count, log.peak_bytes
        self._making_state = True
        try:
            optimizer.step(*args, **kwargs)
        finally:
            self._making_state = False
        log.rewind(calls)
        functions.count, log.peak_bytes = entered, peak

    def _recorded(self, value: Any) -> Any:
        """A closure given to ``step`` computes the loss again: its ops are recorded."""
        if not callable(value) or isinstance(value, torch.optim.Optimizer):
            return value

        def closure() -> Any:
            with self.recorder.recording(True):
                self.recorder.log.end_phase("forward")
                self.recorder.python_calls.paused = False
                try:
                    return value()
                finally:
                    self.recorder.python_calls.paused = True
                    self.recorder.log.end_phase("optimizer")

        return closure

    def _after(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        if not self._running or self._running[-1].optimizer is not optimizer or self._making_state:
            return
        recorder, running = self.recorder, self._running.pop()
        while self._capturable:
            self._capturable.pop()["capturable"] = True
        if running.whole:
            recorder.paused = recorder.python_calls.paused = False
        with Uncounted(), recorder.recording(False):
            self.stepped.append(optimizer)
            if running.whole:
                self._record(optimizer)
            else:
                self._keep(optimizer)
            if not self._running:
                recorder.log.end_phase("forward")


class _Running(NamedTuple):
    """An optimizer that steps, and whether as a whole."""

    optimizer: torch.optim.Optimizer
    whole: bool


def _is_torchs(optimizer: torch.optim.Optimizer) -> bool:
    """Whether it is one of those that are measured; a class derived from one may do anything."""
    name = type(optimizer).__name__
    return name in _STATE_TENSORS and type(optimizer) is getattr(torch.optim, name)


def _as_measured(group: dict[str, Any], kind: Any) -> bool:
    """Whether a group's settings run the ops that a calibration measures: the default ones, in a loop over tensors."""
    defaults = inspect.signature(kind.__init__).parameters
    switches = [name for name in (*_SWITCHES, *_FORMS) if name in defaults]
    return all(bool(group.get(name)) == bool(defaults[name].default) for name in switches)


# --- LBFGS ------------------------------------------------------------------------------------------------------------

#: ``Trace`` fields that count something of forward, loss and backward.
_COUNTS = ("module_calls", "python_calls", "evicted_calls", "autograd_nodes", "syncs")


def repeated(trace: Trace, optimizer: str | torch.optim.Optimizer | None) -> Trace:
    """The trace of a step that evaluates once, with as many evaluations as the settings of LBFGS let it make.

    Without a line search that is one for each of ``max_iter`` iterations, with one up to ``max_eval``. Between them it
    finds a direction by the two loops over its history (Nocedal and Wright, "Numerical optimization", algorithm 7.4).
    A step that converges ends earlier, after one evaluation at the least.
    """
    settings = optimizer.param_groups[0] if isinstance(optimizer, torch.optim.Optimizer) else {}
    iterations = int(settings.get("max_iter") or 20)
    most = int(settings.get("max_eval") or iterations * 5 // 4)
    usual = min(most if settings.get("line_search_fn") else iterations, most)
    body = [call for call in trace.calls if call.phase != "optimizer"]
    weights = sum(call.inputs[0].numel for call in trace.calls[len(body) :] if call.inputs)
    dtype = trace.parameters[0].dtype if trace.parameters else "float32"
    direction = list(_direction(weights, dtype, int(settings.get("history_size") or 100)))
    return dataclasses.replace(
        trace,
        calls=tuple((body + direction) * usual),
        evaluations=(1, usual, most),
        notes=(*trace.notes, f"LBFGS evaluates the model up to {most} times; counted are {usual}"),
        **{name: getattr(trace, name) * usual for name in _COUNTS},
    )


def _direction(weights: int, dtype: str, history: int) -> Iterator[OpCall]:
    """The vector ops of one iteration: a gradient gathered, two loops over the history, a step taken."""
    vector, scalar = dense((weights,), dtype), dense((), dtype)

    def call(op: str, *inputs: Any, in_place: bool = False, syncs: int = 0) -> OpCall:
        output = scalar if op == "aten::dot" else inputs[0]
        return OpCall(op, inputs, (output,), phase="optimizer", in_place=in_place, syncs=syncs)

    yield call("aten::neg", vector)
    for _ in range(2 * history):
        yield call("aten::dot", vector, vector)
        yield call("aten::mul", scalar, scalar)
        yield call("aten::add_", vector, vector, in_place=True, syncs=1)  # a factor that the host has to know
    for _ in range(2):
        yield call("aten::dot", vector, vector)
        yield call("aten::mul", vector, scalar)
        yield call("aten::add_", vector, vector, in_place=True)
