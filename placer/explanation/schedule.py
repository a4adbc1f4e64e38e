"""When the host and the device do what within one step: the timeline's spans, merged until few enough to read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from placer.explanation.rows import SpanRow
from placer.pricing import Prediction, PricedTrace, Span, on_both, timeline
from placer.profile import DeviceFit

#: Most spans of a device. Consecutive ops of one layer are merged; the layer is told as deep as the number allows.
MOST_SPANS = 160
_DEEPEST = 6


def schedule(predictions: Mapping[str, Prediction], data: str) -> dict[str, tuple[SpanRow, ...]]:
    """The spans of one step by device. A device whose prices carry no fit is left out."""
    found = {n: _rows(p.priced, p.priced.fit, data) for n, p in predictions.items() if p.priced.fit is not None}
    return {name: rows for name, rows in found.items() if rows}


def _rows(priced: PricedTrace, fit: DeviceFit, data: str) -> tuple[SpanRow, ...]:
    spans: list[Span] = []
    if priced.split is not None:
        on_both(priced.split, data=data, spans=spans)
    elif priced.device == "cpu":
        timeline.on_cpu(priced, fit, spans=spans)
    else:
        timeline.on_accelerator(priced, fit, data=data, spans=spans)
    depth = _DEEPEST
    rows = _merged(spans, priced, depth)
    while len(rows) > MOST_SPANS and depth:
        depth -= 1
        rows = _merged(spans, priced, depth)
    return rows if len(rows) <= MOST_SPANS else ()  # too many switches between phases to show


def _merged(spans: Sequence[Span], priced: PricedTrace, depth: int) -> tuple[SpanRow, ...]:
    """One row per run of spans on a lane with the same phase and layer; layer names are cut after ``depth`` parts."""
    calls = priced.trace.calls
    rows: list[dict[str, Any]] = []
    last: dict[str, dict[str, Any]] = {}
    for span in spans:
        call = calls[span.call] if span.call >= 0 else None
        label = span.label if call is None else ".".join(call.layer.split(".")[:depth])
        phase = "" if call is None else call.phase
        before = last.get(span.lane)
        if before is not None and (before["label"], before["phase"]) == (label, phase):
            before["seconds"] = span.start + span.seconds - before["start"]
            continue
        row = {"lane": span.lane, "label": label, "phase": phase, "start": span.start, "seconds": span.seconds}
        last[span.lane] = row
        rows.append(row)
    return tuple(SpanRow(**row) for row in rows)
