"""``placer explain`` without a target: the last decisions on this machine, and what their steps really took."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from placer.decision import ABOUT_THE_SAME, history
from placer.errors import PlacerError
from placer.explanation import Explanation, Section, render_sections, render_short, render_text
from placer.units import format_seconds

#: The newest entries of the history that are read: decisions, and the step times between them.
_HISTORY = 500
#: Decisions that are shown.
SHOWN = 10


class LastDecisions:
    """The decisions in the history: ``rows`` of plain values, newest first, and the newest ``explanation``.

    ``full``: its text has all tables. Raises PlacerError if there is none.
    """

    def __init__(self, *, full: bool = False) -> None:
        self.full = full
        self.rows: list[dict[str, Any]] = []
        newest: Mapping[str, Any] = {}
        for entry in history.last(_HISTORY):
            if entry.get("kind") == "decision" and isinstance(entry.get("explanation"), dict):
                newest = entry["explanation"]
                self.rows.insert(0, _row(entry))
            elif entry.get("kind") == "steps" and isinstance(entry.get("step_seconds"), (int, float)):
                self._note_steps(entry)
        if not self.rows:
            raise PlacerError(
                "no decision was taken on this machine yet; name a model: placer explain file.py:attribute "
                "--batch 32,84"
            )
        first, explanation = self.rows[0], Explanation.from_dict(newest)
        notes = [f"decided {first['time']}"]
        if first["seen_seconds"] is not None:
            recorded = format_seconds(first["seen_seconds"])
            notes.append(f"steps recorded since took {recorded} on {first['device']} (median)")
        self.explanation = replace(explanation, notes=(*notes, *explanation.notes))

    def _note_steps(self, entry: Mapping[str, Any]) -> None:
        """Give step times to the newest decision for their device whose prediction they were compared with."""
        predicted = entry.get("predicted_seconds")
        for row in self.rows:
            if row["device"] == entry.get("device") and (predicted is None or predicted == row["predicted_seconds"]):
                row["seen_seconds"] = float(entry["step_seconds"])
                return

    def to_html(self) -> str:
        return self.explanation.to_html()

    def to_json(self) -> str:
        """The newest explanation, with all decisions under ``decisions``."""
        values = {**self.explanation.to_dict(), "decisions": self.rows[:SHOWN]}
        return json.dumps(values, indent=2, allow_nan=False) + "\n"

    def to_text(self, *, width: int, color: bool) -> str:
        """The answer of the newest decision, then a table of the last ones."""
        rows = []
        for row in self.rows[:SHOWN]:
            model = " ".join([row["target"], ", ".join(row["inputs"]), str(row["mode"] or "")]).strip()
            predicted, recorded = row["predicted_seconds"], row["seen_seconds"]
            same = f", {ABOUT_THE_SAME}" if row["verdict"] == ABOUT_THE_SAME else ""
            rows.append(
                [
                    row["time"][:19].replace("T", " "),
                    model,
                    row["device"] + same,
                    *("-" if value is None else format_seconds(value) for value in (predicted, recorded)),
                    f"{predicted / recorded - 1.0:+.0%}" if recorded and predicted else "-",
                ]
            )
        heads = ["decided (UTC)", "model", "device", "predicted", "recorded", "off"]
        table = Section("Last decisions on this machine", heads=heads, rows=rows, left=(1, 2))
        render = render_text if self.full else render_short
        newest = render(self.explanation, width=width, color=color, verify="")
        return newest + "\n" + render_sections([table], width=width, color=color)


def _row(entry: Mapping[str, Any]) -> dict[str, Any]:
    """A decision as plain values; an entry may lack anything."""
    explanation = entry["explanation"]
    workload, devices = explanation.get("workload"), explanation.get("devices")
    facts = workload if isinstance(workload, dict) else {}
    device = str(explanation.get("choice"))
    row = devices.get(device) if isinstance(devices, dict) else None
    predicted = row.get("step_seconds") if isinstance(row, dict) else None
    return {
        "time": str(entry.get("time", "at an unknown time")),
        "target": str(facts.get("target", "model")),
        "inputs": [str(item) for item in facts.get("inputs") or ()],
        "mode": facts.get("mode"),
        "device": device,
        "verdict": explanation.get("verdict", device),
        "predicted_seconds": float(predicted) if isinstance(predicted, (int, float)) else None,
        "seen_seconds": None,
    }
