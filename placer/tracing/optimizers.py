"""The optimizer's part of a step: one call per parameter tensor with a gradient; for LBFGS, all its evaluations."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from placer.errors import TraceError
from placer.nest import distinct
from placer.tracing.recorder import Recorder
from placer.tracing.trace_data import OpCall, Trace, dense, spec_of

#: Settings that change what an update computes. ``momentum`` and ``weight_decay`` are recorded as on or off.
_SWITCHES = ("momentum", "weight_decay", "amsgrad", "centered", "nesterov", "maximize", "capturable", "differentiable")

#: Parameter-sized state tensors per parameter in torch's optimizers, besides what the settings add.
_STATE_TENSORS = {
    "Adam": 2, "AdamW": 2, "NAdam": 2, "RAdam": 2, "SparseAdam": 2, "Adamax": 2, "Adadelta": 2, "Adagrad": 1,
    "RMSprop": 1, "Rprop": 2, "ASGD": 1, "SGD": 0, "LBFGS": 0, "Muon": 1, "Adafactor": 0,
}  # fmt: skip
_STEP_BYTES = 4  # the step counter of optimizers that keep one per parameter


@dataclass
class Plan:
    """Which parameters are updated, how, and what state that needs (bytes)."""

    name: str
    groups: list[tuple[list[Tensor], dict[str, Any]]]
    notes: list[str] = field(default_factory=list)
    state_bytes: int = 0
    custom: torch.optim.Optimizer | None = None


def plan(optimizer: str | torch.optim.Optimizer, model: nn.Module) -> Plan:
    """What a name stands for on the model's parameters, or what an instance does on its own.

    TraceError for a name that is not in torch.optim.
    """
    if isinstance(optimizer, str):
        kind = _class_named(optimizer)
        defaults = {n: p.default for n, p in inspect.signature(kind.__init__).parameters.items()}
        settings = {n: v for n, v in defaults.items() if v is not inspect.Parameter.empty}
        return Plan(kind.__name__, [([p for p in model.parameters() if p.requires_grad], settings)])
    groups = [
        (list(group["params"]), {k: v for k, v in group.items() if k != "params"}) for group in optimizer.param_groups
    ]
    own = None if type(optimizer).__module__.startswith("torch.optim") else optimizer
    return Plan(type(optimizer).__name__, groups, custom=own)


def _class_named(name: str) -> Any:
    classes = {n.lower(): c for n, c in vars(torch.optim).items() if isinstance(c, type)}
    if name.lower() not in classes:
        raise TraceError(f"optimizer {name!r} is not in torch.optim")
    return classes[name.lower()]


def run(plan: Plan, recorder: Recorder) -> None:
    """Record the update of every parameter that has a gradient, and fill in ``plan.state_bytes``."""
    if plan.custom is not None and _step(plan, plan.custom, recorder):
        return
    name = plan.name if plan.name in _STATE_TENSORS else "Adam" if plan.custom is not None else plan.name
    for parameters, settings in plan.groups:
        args = _settings(settings)
        copies = _state_tensors(name, settings)
        for parameter in parameters:
            spec = spec_of(parameter)
            if parameter.grad is None:
                continue
            plan.state_bytes += _state_bytes(name, spec.stored_bytes, spec.shape, spec.item_bytes, copies)
            layer = recorder.layers.owner(parameter)
            updated = spec if parameter.grad.layout is torch.strided else spec_of(parameter.grad)
            recorder.log.record(f"optimizer::{plan.name}", (updated,), (), args, in_place=True, layer=layer)


def _step(plan: Plan, optimizer: torch.optim.Optimizer, recorder: Recorder) -> bool:
    """Run the user's own optimizer op by op."""
    start = len(recorder.log)
    try:
        with recorder:
            optimizer.step()
    except Exception as error:  # noqa: BLE001 - boundary: a user's step() may raise anything; Adam's cost is a fair guess
        recorder.log.rewind(start)
        plan.notes.append(f"{plan.name}.step() could not be traced ({type(error).__name__}: {error}); priced like Adam")
        return False
    plan.state_bytes = sum(spec_of(t).stored_bytes for t in distinct(dict(optimizer.state)))
    return True


def _settings(settings: dict[str, Any]) -> tuple[Hashable, ...]:
    args: list[Hashable] = [(name, settings[name]) for name in ("foreach", "fused") if name in settings]
    args += [(name, bool(settings[name])) for name in _SWITCHES if name in settings]
    return tuple(args)


def _state_tensors(name: str, settings: dict[str, Any]) -> int:
    count = _STATE_TENSORS.get(name, 2)
    count += bool(settings.get("amsgrad")) + bool(settings.get("centered"))
    if name in ("SGD", "RMSprop"):
        count += bool(settings.get("momentum"))
    if name == "LBFGS":
        count += 2 * int(settings.get("history_size") or 100) + 2
    return count


def _state_bytes(name: str, nbytes: int, shape: Sequence[int], item: int, copies: int) -> int:
    if name == "Adafactor":  # row and column statistics only
        return (sum(shape[-2:]) if len(shape) > 1 else nbytes // max(item, 1)) * item + _STEP_BYTES
    return copies * nbytes + (_STEP_BYTES if name not in ("SGD", "LBFGS", "Muon") else 0)


class OptimizerSteps:
    """Follows optimizers: those of torch.optim run unrecorded, as one call per tensor; others are recorded op by op."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.names: list[str] = []
        self.stepped: list[torch.optim.Optimizer] = []
        self._state_bytes: dict[int, int] = {}
        self._running: list[torch.optim.Optimizer] = []

    @property
    def state_bytes(self) -> int:
        """Bytes of state of all optimizers that stepped."""
        return sum(self._state_bytes.values())

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
        name = type(optimizer).__name__
        self.stepped.append(optimizer)
        if name not in self.names:
            self.names.append(name)
        if _known(optimizer):
            self.recorder.paused = self.recorder.python_calls.paused = False
            groups = [
                (list(g["params"]), {k: v for k, v in g.items() if k != "params"}) for g in optimizer.param_groups
            ]
            update = Plan(name, groups)
            run(update, self.recorder)
            self._state_bytes[id(optimizer)] = update.state_bytes
        else:
            held = distinct(dict(optimizer.state))
            self._state_bytes[id(optimizer)] = sum(spec_of(t).stored_bytes for t in held)
        if not self._running:
            self.recorder.log.end_phase("forward")


def _known(optimizer: torch.optim.Optimizer) -> bool:
    return type(optimizer).__module__.startswith("torch.optim")


#: ``Trace`` fields that count something of forward, loss and backward.
_COUNTS = ("module_calls", "python_calls", "evicted_calls", "autograd_nodes", "syncs")


def repeated(trace: Trace, settings: Mapping[str, Any]) -> Trace:
    """The trace of a step that evaluates once, with as many evaluations as ``settings`` of LBFGS let it make.

    Without a line search that is one for each of ``max_iter`` iterations, with one up to ``max_eval``. Between them it
    finds a direction by the two loops over its history (Nocedal and Wright, "Numerical optimization", algorithm 7.4).
    A step that converges ends earlier, after one evaluation at the least.
    """
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
        notes=(*trace.notes, f"LBFGS evaluates the model up to {most} times; priced are {usual}"),
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

