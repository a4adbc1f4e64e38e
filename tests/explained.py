"""An Explanation of predictions that were made by hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from placer.decision import TIME, Objective, PricedPart, Table
from placer.explanation import Explanation, explain_table
from placer.pricing import Prediction
from placer.profile import Profile


def explained(
    predictions: Mapping[str, Prediction], workload: Mapping[str, Any] | None = None,
    machine: Mapping[str, Any] | None = None, notes: tuple[str, ...] = (), objective: Objective = TIME,
) -> Explanation:  # fmt: skip
    """Of one step, in a long run."""
    facts = workload or {"target": "Net", "mode": "train"}
    part = PricedPart("", 1, predictions, facts)
    table = Table((part,), predictions, cast(Profile, None), facts, notes=notes, objective=objective)
    return explain_table(table, table.decide(), machine or {})
