"""A plan: a decision and everything needed to explain it later."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from placer.decision.decision import Decision
from placer.decision.objective import TIME, Objective
from placer.pricing import Prediction
from placer.profile import Profile


@dataclass(frozen=True)
class Plan:
    """A decision and everything needed to explain it later; holds no reference to the model.

    ``key`` names the step in the history. ``measured`` tells that the real step was timed for this plan. ``occupied``
    says which devices other jobs kept busy (see ``occupied.py``), ``left_out`` which cannot be used.
    """

    decision: Decision
    predictions: Mapping[str, Prediction]
    workload: Mapping[str, Any]
    profile: Profile
    notes: tuple[str, ...] = ()
    key: str = ""
    measured: bool = False
    occupied: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    objective: Objective = TIME
