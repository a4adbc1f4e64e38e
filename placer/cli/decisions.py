"""``placer explain`` without a target: the last decisions on this machine, and what their steps really took."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from placer.decision import ABOUT_THE_SAME, history
from placer.errors import PlacerError
from placer.explanation import Explanation, new_table, plain
from placer.units import format_seconds

#: The newest entries of the history that are read: decisions, and the step times between them.
_HISTORY = 500
#: Decisions that are shown.
SHOWN = 10


@dataclass(frozen=True)
class Seen:
    """A past decision: seconds of a step as predicted, and the median of those measured (None: none were)."""

    time: str
    explanation: Mapping[str, Any]
    device: str
    predicted: float | None
    seen: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        workload = self.explanation.get("workload")
        facts = workload if isinstance(workload, dict) else {}
        return {
            "time": self.time,
            "target": str(facts.get("target", "model")),
            "inputs": [str(item) for item in facts.get("inputs") or ()],
            "mode": facts.get("mode"),
            "device": self.device,
            "verdict": self.explanation.get("verdict", self.device),
            "predicted_seconds": self.predicted,
            "seen_seconds": self.seen,
        }


def last_decisions() -> list[Seen]:
    """The decisions in the history, newest first. Raises PlacerError if there is none."""
    found: list[Seen] = []
    for entry in history.last(_HISTORY):
        if entry.get("kind") == "decision" and isinstance(entry.get("explanation"), dict):
            found.append(_decision(entry))
        elif entry.get("kind") == "steps" and isinstance(entry.get("step_seconds"), (int, float)):
            _note_steps(found, entry)
    if not found:
        raise PlacerError(
            "no decision was taken on this machine yet; name a model: placer explain file.py:attribute --batch 32,84"
        )
    return found[::-1]


def newest(found: Sequence[Seen]) -> Explanation:
    """The newest decision in full. Its notes say when it was taken and what its steps have taken."""
    first = found[0]
    explanation = Explanation.from_dict(first.explanation)
    notes = [f"decided {first.time}"]
    if first.seen is not None:
        notes.append(f"steps seen since took {format_seconds(first.seen)} on {first.device} (median)")
    return replace(explanation, notes=(*notes, *explanation.notes))


def to_json(found: Sequence[Seen]) -> str:
    """The newest explanation, with all decisions under ``decisions``."""
    values = {**newest(found).to_dict(), "decisions": [row.to_dict() for row in found[:SHOWN]]}
    return json.dumps(values, indent=2, allow_nan=False) + "\n"


def to_text(found: Sequence[Seen], *, width: int = 100, color: bool = False) -> str:
    """The newest decision in full, then a table of the last ones."""
    table = new_table(
        "Last decisions on this machine", ["decided (UTC)", "model", "device", "predicted", "seen", "off"]
    )
    table.columns[1].justify = table.columns[2].justify = "left"
    for row in found[:SHOWN]:
        facts = row.to_dict()
        model = " ".join([facts["target"], ", ".join(facts["inputs"]), str(facts["mode"] or "")]).strip()
        off = "-" if not (row.seen and row.predicted) else f"{row.predicted / row.seen - 1.0:+.0%}"
        cells = ["-" if value is None else format_seconds(value) for value in (row.predicted, row.seen)]
        device = f"{row.device}, {ABOUT_THE_SAME}" if facts["verdict"] == ABOUT_THE_SAME else row.device
        table.add_row(row.time[:19].replace("T", " "), model, device, *cells, off)
    return newest(found).to_text(width, color=color) + "\n" + plain([table], width=width, color=color)


def _decision(entry: Mapping[str, Any]) -> Seen:
    explanation = entry["explanation"]
    device = str(explanation.get("choice"))
    devices = explanation.get("devices")
    row = devices.get(device) if isinstance(devices, dict) else None
    predicted = row.get("step_seconds") if isinstance(row, dict) else None
    return Seen(
        str(entry.get("time", "at an unknown time")), explanation, device,
        float(predicted) if isinstance(predicted, (int, float)) else None,
    )  # fmt: skip


def _note_steps(found: list[Seen], entry: Mapping[str, Any]) -> None:
    """Give step times to the newest decision for their device whose prediction they were compared with."""
    predicted = entry.get("predicted_seconds")
    for index in reversed(range(len(found))):
        row = found[index]
        if row.device == entry.get("device") and (predicted is None or predicted == row.predicted):
            found[index] = replace(row, seen=float(entry["step_seconds"]))
            return
