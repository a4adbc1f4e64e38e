"""A plan: a decision and everything needed to explain it later."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from placer.decision import observed
from placer.decision.decision import Decision
from placer.decision.objective import TIME, Objective
from placer.pricing import Prediction
from placer.profile import Profile


@dataclass(frozen=True)
class Plan:
    """A decision and everything needed to explain it later; holds no reference to the model.

    ``key`` names the workload in the history. ``measured`` tells that the real step was timed for this plan. What
    earlier runs saw is part of it up to ``generation`` (see ``observed.py``); ``before`` is the plan without that.
    ``kinds`` is equal for steps made of the same ops in the same layers, however often each runs. ``interpolated``
    tells that no step was traced for it.
    ``occupied`` says which devices other jobs kept busy (see ``occupied.py``), ``left_out`` which cannot be used.
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
    kinds: int = 0
    interpolated: bool = False
    occupied: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    objective: Objective = TIME

    @property
    def current(self) -> bool:
        """Whether no step was recorded since that the plan would take into account."""
        return self.interpolated or self.generation == observed.generation()
