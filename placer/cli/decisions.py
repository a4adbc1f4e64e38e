"""``placer explain`` without a target: the last decisions on this machine, and what their steps really took."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from placer.decision import ABOUT_THE_SAME, history
from placer.errors import PlacerError
from placer.explanation import Explanation
from placer.sections import Section, render
from placer.units import format_seconds

#: The newest entries of the history that are read: decisions, and the step times between them.
_HISTORY = 500
#: Decisions that are shown.
SHOWN = 10


def last_decisions() -> LastDecisions:
    """Those in the history of this machine. Raises PlacerError if there is none, or the newest cannot be read."""
    rows: list[dict[str, Any]] = []
    newest: Mapping[str, Any] = {}
    for entry in history.last(_HISTORY):
        if entry.get("kind") == "decision" and isinstance(entry.get("explanation"), dict):
            newest = entry["explanation"]
            with suppress(PlacerError):  # an older one may be of another version
                rows.insert(0, _row(str(entry.get("time")), Explanation.from_dict(newest)))
        elif entry.get("kind") == "steps" and isinstance(entry.get("step_seconds"), (int, float)):
            _note_steps(rows, entry)
    if not newest:
        raise PlacerError(
            "no decision was taken on this machine yet; name a model: placer explain file.py:attribute --batch 32,84"
        )
    explanation = Explanation.from_dict(newest)
    notes = [f"decided {rows[0]['time']}"]
    if rows[0]["seen_seconds"] is not None:
        recorded = format_seconds(rows[0]["seen_seconds"])
        notes.append(f"steps recorded since took {recorded} on {rows[0]['device']} (median)")
    return LastDecisions(rows[:SHOWN], replace(explanation, notes=(*notes, *explanation.notes)))


def _row(time: str, explanation: Explanation) -> dict[str, Any]:
    """A decision as plain values."""
    decision, workload = explanation.decision, explanation.workload
    cost = explanation.devices.get(decision.device)
    return {
        "time": time,
        "target": str(workload.get("target", "model")),
        "inputs": [str(item) for item in workload.get("inputs") or ()],
        "mode": workload.get("mode"),
        "device": decision.device,
        "verdict": decision.verdict,
        "predicted_seconds": None if cost is None else cost.step_seconds,
        "seen_seconds": None,
    }


def _note_steps(rows: list[dict[str, Any]], entry: Mapping[str, Any]) -> None:
    """Give step times to the newest decision for their device whose prediction they were compared with."""
    predicted = entry.get("predicted_seconds")
    for row in rows:
        if row["device"] == entry.get("device") and (predicted is None or predicted == row["predicted_seconds"]):
            row["seen_seconds"] = float(entry["step_seconds"])
            return


@dataclass(frozen=True)
class LastDecisions:
    """The decisions in the history: ``rows`` of plain values, newest first, and the newest ``explanation``."""

    rows: list[dict[str, Any]]
    explanation: Explanation

    def to_html(self) -> str:
        return self.explanation.to_html()

    def to_json(self) -> str:
        """The newest explanation, with all decisions under ``decisions``."""
        values = {**self.explanation.to_dict(), "decisions": self.rows}
        return json.dumps(values, indent=2, allow_nan=False) + "\n"

    def to_text(self, *, width: int, color: bool, full: bool) -> str:
        """The answer of the newest decision, then a table of the last ones."""
        rows = []
        for row in self.rows:
            predicted, recorded = row["predicted_seconds"], row["seen_seconds"]
            same = f", {ABOUT_THE_SAME}" if row["verdict"] == ABOUT_THE_SAME else ""
            rows.append(
                [
                    row["time"][:19].replace("T", " "),
                    " ".join([row["target"], ", ".join(row["inputs"]), str(row["mode"] or "")]).strip(),
                    row["device"] + same,
                    *("-" if value is None else format_seconds(value) for value in (predicted, recorded)),
                    f"{predicted / recorded - 1.0:+.0%}" if recorded and predicted else "-",
                ]
            )
        heads = ["decided (UTC)", "model", "device", "predicted", "recorded", "off"]
        table = Section("Last decisions on this machine", heads=heads, rows=rows, left=(1, 2))
        newest = self.explanation.to_text(width, color=color, full=full, verify="")
        return newest + "\n" + render([table], width=width, color=color)
