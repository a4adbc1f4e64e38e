"""The optimizer's part of a step: one call per parameter tensor with a gradient; for LBFGS, all its evaluations."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
from collections.abc import Hashable, Iterator, Sequence
from typing import Any

import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from placer.errors import TraceError
from placer.nest import distinct
from placer.tracing.recorder import Recorder
from placer.tracing.trace_data import OpCall, TensorSpec, Trace, dense, spec_of

#: Settings that change what an update computes. ``momentum`` and ``weight_decay`` are recorded as on or off.
_SWITCHES = ("momentum", "weight_decay", "amsgrad", "centered", "nesterov", "maximize", "capturable", "differentiable")

#: Parameter-sized state tensors per parameter in torch's optimizers, besides what the settings add.
_STATE_TENSORS = {
    "Adam": 2, "AdamW": 2, "NAdam": 2, "RAdam": 2, "SparseAdam": 2, "Adamax": 2, "Adadelta": 2, "Adagrad": 1,
    "RMSprop": 1, "Rprop": 2, "ASGD": 1, "SGD": 0, "LBFGS": 0, "Muon": 1, "Adafactor": 0,
}  # fmt: skip
_STEP_BYTES = 4  # the step counter of optimizers that keep one per parameter


def _class_named(name: str) -> Any:
    classes = {n.lower(): c for n, c in vars(torch.optim).items() if isinstance(c, type)}
    if name.lower() not in classes:
        raise TraceError(f"optimizer {name!r} is not in torch.optim")
    return classes[name.lower()]


def _settings(settings: dict[str, Any]) -> tuple[Hashable, ...]:
    args: list[Hashable] = [(name, settings[name]) for name in ("foreach", "fused") if name in settings]
    args += [(name, bool(settings[name])) for name in _SWITCHES if name in settings]
    return tuple(args)


def _state_bytes(name: str, parameter: TensorSpec, settings: dict[str, Any]) -> int:
    if name == "Adafactor":  # row and column statistics only
        elements = sum(parameter.shape[-2:]) if len(parameter.shape) > 1 else parameter.numel
        return elements * parameter.item_bytes + _STEP_BYTES
    copies = _STATE_TENSORS[name] + bool(settings.get("amsgrad")) + bool(settings.get("centered"))
    if name in ("SGD", "RMSprop"):
        copies += bool(settings.get("momentum"))
    if name == "LBFGS":
        copies += 2 * int(settings.get("history_size") or 100) + 2
    return copies * parameter.stored_bytes + (_STEP_BYTES if name not in ("SGD", "LBFGS", "Muon") else 0)


class Updates:
    """Records the updates of a step: those of torch.optim as one call per tensor with a gradient, others op by op."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.names: list[str] = []
        self.notes: list[str] = []
        self.stepped: list[torch.optim.Optimizer] = []
        self._state_bytes: dict[Any, int] = {}
        self._running: list[torch.optim.Optimizer] = []
        self._capturable: list[dict[str, Any]] = []

    @property
    def state_bytes(self) -> int:
        """Bytes of state of all optimizers."""
        return sum(self._state_bytes.values())

    def end_step(self, optimizer: str | torch.optim.Optimizer, model: nn.Module) -> None:
        """The update of a model by what a name stands for, or by an instance. TraceError for an unknown name."""
        if isinstance(optimizer, str):
            kind = _class_named(optimizer)
            defaults = {n: p.default for n, p in inspect.signature(kind.__init__).parameters.items()}
            settings = {n: v for n, v in defaults.items() if v is not inspect.Parameter.empty}
            updated = [p for p in model.parameters() if p.requires_grad]
            self._record(kind.__name__, kind, [{"params": updated, **settings}])
            return
        name, start = type(optimizer).__name__, len(self.recorder.log)
        if not _known(optimizer):
            try:
                with self.recorder:
                    optimizer.step()
            except Exception as error:  # noqa: BLE001 - a user's step() may raise anything; Adam's cost is a fair guess
                self.recorder.log.rewind(start)
                said = f"{name}.step() could not be traced ({type(error).__name__}: {error}); treated like Adam"
                self.notes.append(said)
            else:
                self._keep(name, optimizer)
                return
        self._record(name, optimizer, optimizer.param_groups)

    def _record(self, name: str, key: Any, groups: Sequence[dict[str, Any]]) -> None:
        """Record the update of every parameter that has a gradient."""
        log, nbytes = self.recorder.log, 0
        for group in groups:
            args = _settings(group)
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                spec = spec_of(parameter)
                nbytes += _state_bytes(name if name in _STATE_TENSORS else "Adam", spec, group)
                updated = spec if parameter.grad.layout is torch.strided else spec_of(parameter.grad)
                layer = self.recorder.layers.owner(parameter)
                log.record(f"optimizer::{name}", (updated,), (), args, in_place=True, layer=layer)
        self._name(name)
        self._state_bytes[key] = nbytes

    def _keep(self, name: str, optimizer: torch.optim.Optimizer) -> None:
        """Count the state of an optimizer that has stepped."""
        self._name(name)
        self._state_bytes[optimizer] = sum(spec_of(t).stored_bytes for t in distinct(dict(optimizer.state)))

    def _name(self, name: str) -> None:
        if name not in self.names:
            self.names.append(name)

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Follow the steps of all optimizers. Raises TraceError where the body goes on after one that failed."""
        handles = [register_optimizer_step_pre_hook(self._before), register_optimizer_step_post_hook(self._after)]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()
        if self._running:
            raise TraceError(f"the step function goes on after {type(self._running[-1]).__name__}.step() failed")

    def _before(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> Any:
        if self.recorder.paused:
            return None
        self.recorder.log.end_phase("optimizer")
        self._running.append(optimizer)
        for group in optimizer.param_groups:
            if group.get("capturable"):  # the CPU has no such update: what the step computes is the same without
                group["capturable"] = False
                self._capturable.append(group)
        if not _known(optimizer):
            return None
        self.recorder.paused = self.recorder.python_calls.paused = True
        return tuple(self._recorded(a) for a in args), {k: self._recorded(v) for k, v in kwargs.items()}

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
        if not self._running or self._running[-1] is not optimizer:
            return
        self._running.pop()
        while self._capturable:
            self._capturable.pop()["capturable"] = True
        self.stepped.append(optimizer)
        name = type(optimizer).__name__
        if _known(optimizer):
            self.recorder.paused = self.recorder.python_calls.paused = False
            self._record(name, optimizer, optimizer.param_groups)
        else:
            self._keep(name, optimizer)
        if not self._running:
            self.recorder.log.end_phase("forward")


def _known(optimizer: torch.optim.Optimizer) -> bool:
    return type(optimizer).__module__.startswith("torch.optim")


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

