"""The plots of a fleet's page: time against money, or times alone where nothing has a price."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from placer.explanation import draw_svg, provenance_kind
from placer.fleets.data import FleetData
from placer.fleets.lines import Line, cut, many
from placer.units import format_dollars, format_duration

#: What the numbers rest on, and the colour of the style sheet for it.
_COLOURS = {
    "calibrated": "var(--device-2)", "published": "var(--device-0)", "data sheet": "var(--device-1)",
    "estimated": "var(--device-3)",
}  # fmt: skip
#: Names beside the points, besides those of the Pareto set: more would cover each other.
_LABELLED = 12
_UNITS = ((86400.0, "days"), (3600.0, "hours"), (60.0, "minutes"), (1.0, "seconds"), (1e-3, "milliseconds"))


def has_prices(lines: Sequence[Line]) -> bool:
    """Whether there is money to draw."""
    return any(line.row.dollars is not None for line in lines)


def money(fleet: FleetData, lines: Sequence[Line]) -> str:
    """Time against money on log scales, as SVG. Machines without a price are left out."""
    priced = [line for line in lines if line.row.dollars is not None]
    unit, scale = _unit([many(fleet) * line.row.seconds for line in priced])
    values: list[dict[str, Any]] = []
    for number, line in enumerate(priced):
        row = line.row
        low, high = (many(fleet) * seconds / scale for seconds in row.between)
        dollars, seconds = many(fleet) * (row.dollars or 0.0), many(fleet) * row.seconds
        values.append({
            "name": line.name, "seconds": seconds / scale, "low": low, "high": high, "dollars": dollars,
            "label": line.name if row.pareto or number < _LABELLED else "", "pareto": row.pareto,
            "numbers": provenance_kind(row.device, row.provenance),
            "what": f"{row.device} of {line.name}: {format_duration(seconds)}, {format_dollars(dollars)}",
        })  # fmt: skip
    x = {"field": "seconds", "type": "quantitative", "title": f"time, {unit}", "axis": {"tickCount": 6},
         "scale": _log([value[end] for value in values for end in ("low", "high")])}  # fmt: skip
    y = {"field": "dollars", "type": "quantitative", "title": "money, dollars",
         "axis": {"tickCount": 5, "format": "$~g"}, "scale": _log([value["dollars"] for value in values])}  # fmt: skip
    front = [{"filter": "datum.pareto"}]
    return draw_svg({
        "data": {"values": values},
        "height": 380,
        "layer": [
            {"transform": front, "mark": {"type": "line", "color": "var(--quiet)", "strokeDash": [5, 4]},
             "encoding": {"x": x, "y": y, "order": {"field": "seconds"}}},
            {"mark": {"type": "rule", "opacity": 0.45}, "encoding": {
                "x": {**x, "field": "low"}, "x2": {"field": "high"}, "y": y, "color": _colour(values)}},
            {"mark": {"type": "point", "filled": True, "size": 70, "opacity": 1},
             "encoding": {"x": x, "y": y, "color": _colour(values), "description": {"field": "what"}}},
            {"mark": {"type": "text", "align": "left", "dx": 7, "dy": -8, "fontSize": 11, "fill": "currentColor"},
             "encoding": {"x": x, "y": y, "text": {"field": "label"}}},
        ],
    }, "Time against money by machine")  # fmt: skip


def times(fleet: FleetData, lines: Sequence[Line]) -> str:
    """A bar a machine on a log scale, as SVG; of a long list, those that the text shows."""
    shown = cut(fleet, lines)
    unit, scale = _unit([line.row.seconds for line in shown])
    values = [
        {"name": line.name, "seconds": line.row.seconds / scale, "low": line.row.between[0] / scale,
         "high": line.row.between[1] / scale, "numbers": provenance_kind(line.row.device, line.row.provenance),
         "what": f"{line.row.device} of {line.name}: {format_duration(line.row.seconds)}"}
        for line in shown
    ]  # fmt: skip
    y = {"field": "name", "type": "nominal", "sort": None, "title": None,
         "axis": {"labelLimit": 240, "minExtent": min(7 * max(len(line.name) for line in shown), 240)}}  # fmt: skip
    x = {"field": "seconds", "type": "quantitative", "title": f"time, {unit}", "axis": {"tickCount": 8}}
    return draw_svg({
        "data": {"values": values},
        "height": {"step": 24},
        "encoding": {"y": y},
        "layer": [
            {"mark": {"type": "bar", "height": 14}, "encoding": {"x": x, "color": _colour(values),
                                                                 "description": {"field": "what"}}},
            {"mark": {"type": "rule", "color": "currentColor"},
             "encoding": {"x": {**x, "field": "low"}, "x2": {"field": "high"}}},
        ],
    }, "Time by machine")  # fmt: skip


def _colour(values: Sequence[dict[str, Any]]) -> dict[str, Any]:
    found = [name for name in _COLOURS if any(value["numbers"] == name for value in values)]
    return {"field": "numbers", "type": "nominal", "sort": None,
            "scale": {"domain": found, "range": [_COLOURS[name] for name in found]}}  # fmt: skip


def _log(values: Sequence[float]) -> dict[str, Any]:
    """A log scale with some room at both ends, where names stand."""
    return {"type": "log", "nice": False, "domain": [min(values) / 1.15, max(values) * 1.3]}


def _unit(seconds: Sequence[float]) -> tuple[str, float]:
    """The unit that an axis of these times is read in, and its length in seconds."""
    middle = sorted(seconds)[len(seconds) // 2]
    return next(((unit, scale) for scale, unit in _UNITS if middle >= scale), ("microseconds", 1e-6))
