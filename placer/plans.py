"""What was decided before: a repeated question costs a look-up, not a trace.

Two levels. The same model object is recognised by a quick walk over its modules and parameters; another instance of the
same architecture by its full signature. Both are bounded, and neither keeps a model alive.
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from placer.decision import Decision
from placer.prediction import Prediction
from placer.profile import Profile
from placer.signature import module_signature

#: Plans kept for one model object (batch sizes, modes), and for architectures in all.
PER_MODEL = 32
PER_PROCESS = 64


@dataclass(frozen=True)
class Plan:
    """A decision and everything needed to explain it later; holds no reference to the model."""

    decision: Decision
    predictions: Mapping[str, Prediction]
    workload: Mapping[str, Any]
    profile: Profile
    notes: tuple[str, ...] = ()


@dataclass
class _Seen:
    """What is known of one model object. ``changed`` is set when a module it had is gone.

    The snapshot compares identities; one can only be reused once its owner is dead, which ``changed`` notices.
    """

    snapshot: list[Any]
    device: torch.device | None
    plans: OrderedDict[Hashable, Plan] = field(default_factory=OrderedDict)
    changed: bool = False
    references: list[weakref.ref[Any]] = field(default_factory=list)


class Plans:
    """Plans by model object and by architecture; safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_model: weakref.WeakKeyDictionary[nn.Module, _Seen] = weakref.WeakKeyDictionary()
        self._by_signature: OrderedDict[Hashable, Plan] = OrderedDict()

    def get(self, model: nn.Module, question: Hashable) -> Plan | None:
        """The plan for this model and question, if it was made before."""
        seen = self._by_model.get(model)
        if seen is not None and not seen.changed:
            plan = seen.plans.get(question)
            if plan is not None and snapshot(model) == seen.snapshot:
                return plan
        with self._lock:
            key = (module_signature(model), question)
            plan = self._by_signature.get(key)
            if plan is not None:
                self._by_signature.move_to_end(key)
                self._remember(model, question, plan)
            return plan

    def device_of(self, model: nn.Module) -> torch.device | None:
        """The one device a model was entirely on when ``get`` last recognised it; None if that is not known."""
        seen = self._by_model.get(model)
        return None if seen is None or seen.changed else seen.device

    def put(self, model: nn.Module, question: Hashable, plan: Plan) -> None:
        """Keep a plan; the least recently used ones make room."""
        with self._lock:
            self._remember(model, question, plan)
            self._by_signature[(module_signature(model), question)] = plan
            while len(self._by_signature) > PER_PROCESS:
                self._by_signature.popitem(last=False)

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._by_model.clear()
            self._by_signature.clear()

    def _remember(self, model: nn.Module, question: Hashable, plan: Plan) -> None:
        now = snapshot(model)
        seen = self._by_model.get(model)
        if seen is None or seen.changed or seen.snapshot != now:
            seen = _Seen(now, device=_only_device(model))
            watch(model, seen)
            self._by_model[model] = seen
        seen.plans[question] = plan
        seen.plans.move_to_end(question)
        while len(seen.plans) > PER_MODEL:
            seen.plans.popitem(last=False)


def snapshot(model: nn.Module) -> list[Any]:
    """A quick picture of a model object that changes with its architecture, modes, dtypes, devices and frozen parts.

    Plain attributes are compared on the model itself only (not on its submodules): this runs on every repeated call.
    """
    picture: list[Any] = [id(value) for key, value in model.__dict__.items() if key[0] != "_"]
    add = picture.append
    modules: list[Any] = [model]
    for module in modules:  # grows as it goes
        if module is None:
            continue
        attributes = module.__dict__
        add(id(module))
        add(attributes["training"])
        for parameter in attributes["_parameters"].values():
            if parameter is not None:
                add(id(parameter))
                add(parameter.dtype)
                add(parameter.device)
                add(parameter.requires_grad)
        if children := attributes["_modules"]:
            modules.extend(children.values())
    return picture


def _only_device(model: nn.Module) -> torch.device | None:
    devices = {tensor.device for tensor in (*model.parameters(), *model.buffers())}
    return devices.pop() if len(devices) == 1 else None


def watch(model: nn.Module, seen: _Seen) -> None:
    """Let ``seen`` know when a submodule dies, as its identity may then be given to another.

    Parameters are not watched: some devices are moved to by swapping a parameter's content, which torch refuses while
    anybody holds a weak reference to it. One that replaces another in its module is made while that still lives, and so
    has an identity of its own.
    """

    def gone(_: object) -> None:
        seen.changed = True

    for module in model.modules():
        if module is not model:
            seen.references.append(weakref.ref(module, gone))
