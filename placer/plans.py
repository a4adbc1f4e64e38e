"""What was decided before: a repeated question costs a look-up, not a trace.

Two levels. The same model object is recognised by its watch (``watch.py``); another instance of the same architecture
by its full signature. Both are bounded, and neither keeps a model alive.
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
from placer.moving import only_device
from placer.prediction import Prediction
from placer.profile import Profile
from placer.signature import module_signature
from placer.watch import Watch

#: Plans kept for one model object (batch sizes, modes), and for architectures in all.
PER_MODEL = 32
PER_PROCESS = 64


@dataclass(frozen=True)
class Plan:
    """A decision and everything needed to explain it later; holds no reference to the model.

    ``key`` names the workload in the history. ``measured`` tells that the real step was timed for this plan. What
    earlier runs saw is part of it up to ``generation`` (see ``observed.py``); ``before`` is the plan without that.
    ``occupied`` says which devices other jobs kept busy (see ``occupied.py``).
    """

    decision: Decision
    predictions: Mapping[str, Prediction]
    workload: Mapping[str, Any]
    profile: Profile
    notes: tuple[str, ...] = ()
    key: str = ""
    measured: bool = False
    generation: int = 0
    before: Plan | None = None
    occupied: tuple[str, ...] = ()


@dataclass
class _Seen:
    """What is known of one model object in one state."""

    watch: Watch
    device: torch.device | None
    plans: OrderedDict[Hashable, Plan] = field(default_factory=OrderedDict)


class Plans:
    """Plans by model object and by architecture; safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_model: weakref.WeakKeyDictionary[nn.Module, _Seen] = weakref.WeakKeyDictionary()
        self._by_signature: OrderedDict[Hashable, Plan] = OrderedDict()

    def get(self, model: nn.Module, question: Hashable) -> Plan | None:
        """The plan for this model and question, if it was made before."""
        seen = self._by_model.get(model)
        if seen is not None:
            plan = seen.plans.get(question)
            if plan is not None and seen.watch.unchanged(model):
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
        return None if seen is None else seen.device

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

    def unlock(self) -> None:
        """After a fork, in the child: no thread is left that could release the lock."""
        self._lock = threading.Lock()

    def _remember(self, model: nn.Module, question: Hashable, plan: Plan) -> None:
        seen = self._by_model.get(model)
        if seen is None or not seen.watch.unchanged(model):
            seen = self._by_model[model] = _Seen(Watch(model), only_device((model,)))
        seen.plans[question] = plan
        seen.plans.move_to_end(question)
        while len(seen.plans) > PER_MODEL:
            seen.plans.popitem(last=False)
