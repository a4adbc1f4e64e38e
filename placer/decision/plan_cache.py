"""What was decided before: a repeated question costs a look-up, not a trace.

Two levels. The same model object is recognised by its watch (``watch.py``); another instance of the same architecture
by its full signature. A question that differs in nothing but the sizes of its tensors finds the plans between whose
sizes it lies (``between.py``). All is bounded, and nothing keeps a model alive.
"""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from placer.decision.interpolation import Sizes, nearest_around
from placer.decision.plan import Plan
from placer.placement import only_device
from placer.workload import Watch, module_signature, without_sizes

#: Plans kept for one model object (batch sizes, modes), and for architectures in all.
PER_MODEL = 32
PER_PROCESS = 64


class _Architecture:
    """A model's signature, thousands of parts that are hashed once."""

    __slots__ = ("_hash", "_parts")

    def __init__(self, model: nn.Module) -> None:
        self._parts = module_signature(model)
        self._hash = hash(self._parts)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, _Architecture) and self._hash == other._hash and self._parts == other._parts


@dataclass
class _Seen:
    """What is known of one model object in one state."""

    watch: Watch
    device: torch.device | None
    architecture: _Architecture
    plans: OrderedDict[Hashable, Plan] = field(default_factory=OrderedDict)
    #: What questions mean, by the words in which they were asked (see ``request.words``).
    meanings: OrderedDict[Hashable, Any] = field(default_factory=OrderedDict)


class PlanCache:
    """Plans by model object and by architecture; safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_model: weakref.WeakKeyDictionary[nn.Module, _Seen] = weakref.WeakKeyDictionary()
        self._by_signature: OrderedDict[tuple[_Architecture, Hashable], Plan] = OrderedDict()
        #: The same plans by what is left of their question without sizes, and by the sizes.
        self._by_sizes: dict[Hashable, dict[Sizes, Plan]] = {}

    def get(self, model: nn.Module, question: Hashable) -> Plan | None:
        """The plan for this model and question, if it was made before."""
        seen = self._by_model.get(model)
        known = seen is not None and seen.watch.unchanged(model)
        if known and seen is not None and (plan := seen.plans.get(question)) is not None:
            return plan
        with self._lock:
            if seen is None or not known:
                seen = self._look_at(model)
            key = (seen.architecture, question)
            plan = self._by_signature.get(key)
            if plan is not None:
                self._by_signature.move_to_end(key)
                _keep(seen.plans, question, plan)
            return plan

    def again(self, model: nn.Module, words: Hashable, question: Callable[[Any], Hashable]) -> tuple[Plan, Any] | None:
        """The plan for a question that this model object was asked in the same ``words``, and their meaning.

        ``question`` makes the question of the meaning that ``understood`` was given.
        """
        seen = self._by_model.get(model)
        if seen is None:
            return None
        meaning = None
        with contextlib.suppress(TypeError):  # something in them has no hash
            meaning = seen.meanings.get(words)
        plan = None if meaning is None else seen.plans.get(question(meaning))
        return (plan, meaning) if plan is not None and seen.watch.unchanged(model) else None

    def understood(self, model: nn.Module, words: Hashable, meaning: Any) -> None:
        """Keep what the words of a question mean, for as long as the model is what it was."""
        seen = self._by_model.get(model)
        if seen is not None:
            with self._lock, contextlib.suppress(TypeError):
                _keep(seen.meanings, words, meaning)

    def device_of(self, model: nn.Module) -> torch.device | None:
        """The one device a model was entirely on when ``get`` last recognised it; None if that is not known."""
        seen = self._by_model.get(model)
        return None if seen is None else seen.device

    def put(self, model: nn.Module, question: Hashable, plan: Plan) -> None:
        """Keep a plan; the least recently used ones make room. One that was not traced is only kept for its model."""
        with self._lock:
            seen = self._by_model.get(model)
            if seen is None or not seen.watch.unchanged(model):
                seen = self._look_at(model)
            _keep(seen.plans, question, plan)
            if plan.interpolated:
                return
            self._by_signature[seen.architecture, question] = plan
            self._by_signature.move_to_end((seen.architecture, question))
            skeleton, sizes = without_sizes(question)
            self._by_sizes.setdefault((seen.architecture, skeleton), {})[sizes] = plan
            while len(self._by_signature) > PER_PROCESS:
                self._forget(*self._by_signature.popitem(last=False)[0])

    def between(self, model: nn.Module, question: Hashable) -> tuple[Plan, Plan, float, float] | None:
        """The nearest plans for a smaller and a larger question of the same kind, and how far it is from either.

        To be asked after ``get``, which has looked at the model; the distances are those of ``between.growth``.
        """
        seen = self._by_model.get(model)
        if seen is None:
            return None
        skeleton, sizes = without_sizes(question)
        with self._lock:
            return nearest_around(self._by_sizes.get((seen.architecture, skeleton), {}), sizes)

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._by_model.clear()
            self._by_signature.clear()
            self._by_sizes.clear()

    def unlock(self) -> None:
        """After a fork, in the child: no thread is left that could release the lock."""
        self._lock = threading.Lock()

    def _look_at(self, model: nn.Module) -> _Seen:
        seen = self._by_model[model] = _Seen(Watch(model), only_device((model,)), _Architecture(model))
        return seen

    def _forget(self, architecture: _Architecture, question: Hashable) -> None:
        """A plan that has left ``_by_signature`` is not interpolated from any more."""
        skeleton, sizes = without_sizes(question)
        alike = self._by_sizes[architecture, skeleton]
        del alike[sizes]
        if not alike:
            del self._by_sizes[architecture, skeleton]


def _keep(kept: OrderedDict[Hashable, Any], key: Hashable, value: Any) -> None:
    kept[key] = value
    kept.move_to_end(key)
    while len(kept) > PER_MODEL:
        kept.popitem(last=False)


#: What this process decided.
plans = PlanCache()
if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=plans.unlock)
