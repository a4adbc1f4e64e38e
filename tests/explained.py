"""An Explanation of predictions that were made by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from placer.decision import TIME, Objective, PricedPart, Table
from placer.explanation import Explanation
from placer.pricing import Prediction
from placer.profile import SCHEMA, Profile

#: The profile of a machine of which nothing is known.
NOWHERE = Profile(schema=SCHEMA, created="", fingerprint={}, fits=(), noise={}, warnings=(), complete=True, seconds=0.0)


def explained(
    predictions: Mapping[str, Prediction],
    workload: Mapping[str, Any] | None = None,
    machine: Mapping[str, Any] | None = None,
    notes: tuple[str, ...] = (),
    objective: Objective = TIME,
) -> Explanation:
    """Of one step, in a long run."""
    explanation = Explanation.of(table_of(predictions, workload, notes, objective))
    return replace(explanation, machine=machine or {})


def table_of(
    predictions: Mapping[str, Prediction],
    workload: Mapping[str, Any] | None = None,
    notes: tuple[str, ...] = (),
    objective: Objective = TIME,
) -> Table:
    """The table of one step, in a long run."""
    facts = workload or {"target": "Net", "mode": "train"}
    return Table((PricedPart("", 1, predictions, facts),), NOWHERE, facts, notes=notes, objective=objective)
