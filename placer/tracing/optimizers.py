"""The optimizer's part of a step: one call per parameter tensor that gets a gradient."""

from __future__ import annotations

import inspect
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from placer.errors import TraceError
from placer.nest import distinct
from placer.tracing import layout
from placer.tracing.layers import Layers
from placer.tracing.recorder import Recorder

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


def run(plan: Plan, recorder: Recorder, layers: Layers) -> None:
    """Record the update of every parameter that has a gradient, and fill in ``plan.state_bytes``."""
    if plan.custom is not None and _step(plan, plan.custom, recorder):
        return
    name = plan.name if plan.name in _STATE_TENSORS else "Adam" if plan.custom is not None else plan.name
    for parameters, settings in plan.groups:
        args = _settings(settings)
        copies = _state_tensors(name, settings)
        for parameter in parameters:
            spec = layout.spec_of(parameter)
            if parameter.grad is None:
                continue
            plan.state_bytes += _state_bytes(name, spec.stored_bytes, spec.shape, spec.item_bytes, copies)
            layer = layers.owner(parameter)
            updated = spec if parameter.grad.layout is torch.strided else layout.spec_of(parameter.grad)
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
    plan.state_bytes = sum(layout.spec_of(t).stored_bytes for t in distinct(dict(optimizer.state)))
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
