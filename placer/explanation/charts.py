"""The report's plots as SVG, drawn by Vega-Lite without a browser: vl-convert, of ``torch-placer[report]``.

Colours are CSS variables, so that a plot follows the page from light to dark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from placer.errors import PlacerError
from placer.explanation.data import ExplanationData
from placer.explanation.provenance import headings
from placer.explanation.rows import SpanRow
from placer.explanation.step_parts import PARTS, shown_parts, step_parts
from placer.explanation.sweep import Sweep
from placer.pricing import NOT_PREDICTED
from placer.units import format_seconds

WIDTH = 820
#: Colours of devices in order, of parts and of phases, by the names the style sheet gives them.
DEVICE_COLOURS = tuple(f"var(--device-{n})" for n in range(4))
_PARTS = ("arithmetic", "memory", "overhead", "optimizer", "dispatch", "copy", "sync", "compute", NOT_PREDICTED)
PART_COLOURS = {name: f"var(--part-{n})" for n, name in enumerate(_PARTS)}
PHASE_COLOURS = {
    "forward": "var(--part-0)", "loss": "var(--part-6)", "backward": "var(--part-1)", "optimizer": "var(--part-3)",
    "copy or wait": "var(--part-5)",
}  # fmt: skip

_CONFIG = {
    "background": None,
    "font": "system-ui, sans-serif",
    "axis": {"labelColor": "currentColor", "titleColor": "currentColor", "gridColor": "var(--line)",
             "domainColor": "var(--line)", "tickColor": "var(--line)", "labelFontSize": 12, "titleFontSize": 12,
             "titleFontWeight": "normal"},
    "legend": {"labelColor": "currentColor", "titleColor": "currentColor", "labelFontSize": 12, "orient": "top",
               "title": None, "symbolStrokeWidth": 0, "symbolOpacity": 1, "columnPadding": 28},
    "view": {"stroke": None},
}  # fmt: skip

#: So few ticks that every label has room.
_TICKS = {"tickCount": 8}


def svg(spec: Mapping[str, Any], title: str) -> str:
    """A Vega-Lite specification as an SVG element that a screen reader introduces by ``title``."""
    try:
        import vl_convert
    except ImportError:
        raise PlacerError("the html report needs vl-convert-python; run: pip install 'torch-placer[report]'") from None
    full = {"width": WIDTH, "config": _CONFIG, "description": title, **spec}
    drawn: str = vl_convert.vegalite_to_svg(full)
    # HTML knows both namespaces; without them the page holds nothing that looks like a web address.
    for namespace in (' xmlns="http://www.w3.org/2000/svg"', ' xmlns:xlink="http://www.w3.org/1999/xlink"'):
        drawn = drawn.replace(namespace, "", 1)
    return drawn.replace("<svg ", '<svg role="figure" ', 1)


def made_of(explanation: ExplanationData) -> str:
    """One stacked bar per device: the parts of a step, on one scale."""
    unit, scale = _unit(max(row.step_seconds for row in explanation.devices.values()))
    called = headings(explanation.devices)
    rows = [
        {"device": called[name], "part": PARTS.get(part, part), "shown": max(seconds, 0.0) / scale, "order": order,
         "time": format_seconds(seconds)}
        for name in explanation.devices
        for order, (part, seconds) in enumerate(step_parts(explanation, name).items())
        if seconds
    ]  # fmt: skip
    parts = shown_parts({name: step_parts(explanation, name) for name in explanation.devices})
    colours = [PART_COLOURS.get(part, "var(--part-8)") for part in parts]
    return svg({
        "data": {"values": rows},
        "height": {"step": 32},
        "mark": {"type": "bar", "stroke": "var(--paper)", "strokeWidth": 1},
        "encoding": {
            "y": {"field": "device", "type": "nominal", "sort": None, "title": None},
            "x": {"field": "shown", "type": "quantitative", "title": f"{explanation.one}, {unit}", "axis": _TICKS},
            "order": {"field": "order"},
            "color": {"field": "part", "type": "nominal", "sort": None,
                      "scale": {"domain": [PARTS.get(p, p) for p in parts], "range": colours}},
            "description": {"field": "time"},
        },
    }, "Parts of a step by device")  # fmt: skip


def timeline(device: str, spans: Sequence[SpanRow]) -> str:
    """What the host and the device do within one step."""
    unit, scale = _unit(max(span.start + span.seconds for span in spans))
    values = [
        {"lane": span.lane, "phase": span.phase or "copy or wait", "from": span.start / scale,
         "to": (span.start + span.seconds) / scale,
         "what": f"{span.lane}, {span.phase} {span.label or 'whole model'}: {format_seconds(span.seconds)}"}
        for span in spans
    ]  # fmt: skip
    phases = [phase for phase in PHASE_COLOURS if any(value["phase"] == phase for value in values)]
    return svg({
        "data": {"values": values},
        "height": {"step": 34},
        "mark": {"type": "bar", "stroke": "var(--paper)", "strokeWidth": 0.5},
        "encoding": {
            "y": {"field": "lane", "type": "nominal", "sort": ["host", "device"], "title": None},
            "x": {"field": "from", "type": "quantitative", "title": f"since the step began, {unit}",
                  "axis": _TICKS},
            "x2": {"field": "to"},
            "color": {"field": "phase", "type": "nominal", "sort": None,
                      "scale": {"domain": phases, "range": [PHASE_COLOURS[phase] for phase in phases]}},
            "description": {"field": "what"},
        },
    }, f"When a step does what on {device}")  # fmt: skip


def sweep(found: Sweep) -> str:
    """The curves of all devices with their 90 % intervals on log scales; a rule where the choice turns."""
    known = [time[0] for name in found.devices for time in found.times(name) if time is not None]
    unit, scale = _unit(max(known))
    called = found.headings
    values = [
        {"x": value, "device": called[name], "seconds": time[0] / scale, "low": time[1] / scale,
         "high": time[2] / scale, "what": f"{name}, {found.named(value)}: {format_seconds(time[0])}"}
        for name in found.devices
        for value, time in zip(found.rows, found.times(name), strict=True)
        if time is not None
    ]  # fmt: skip
    x = {"field": "x", "type": "quantitative", "scale": {"type": "log", "nice": False},
         "axis": {"values": list(found.rows), "labelOverlap": True, "format": ",d"},
         "title": found.axis}  # fmt: skip
    colour = {"field": "device", "type": "nominal", "sort": None,
              "scale": {"domain": list(called.values()),
                        "range": list(DEVICE_COLOURS[: len(found.devices)])}}  # fmt: skip
    y = {
        "type": "quantitative",
        "scale": {"type": "log"},
        "axis": {"tickCount": 5},
        "title": f"{unit} in all" if found.in_all else f"{unit} of {'the job' if found.part else 'a step'}",
    }
    turns = [{"x": found.turn(value) or value} for value, _ in found.crossovers()[1:]]
    layers: list[dict[str, Any]] = [
        {"mark": {"type": "area", "opacity": 0.2}, "encoding": {"x": x, "y": {"field": "low", **y},
                                                               "y2": {"field": "high"}, "color": colour}},
        {"mark": {"type": "line", "strokeWidth": 2},
         "encoding": {"x": x, "y": {"field": "seconds", **y}, "color": colour}},
        {"mark": {"type": "point", "filled": True, "size": 50, "opacity": 1},
         "encoding": {"x": x, "y": {"field": "seconds", **y}, "color": colour, "description": {"field": "what"}}},
        {"data": {"values": turns}, "mark": {"type": "rule", "strokeDash": [4, 4], "color": "currentColor"},
         "encoding": {"x": {**x, "field": "x"}}},
    ]  # fmt: skip
    return svg({"data": {"values": values}, "height": 260, "layer": layers if turns else layers[:-1]},
               f"Time by {found.axis}")  # fmt: skip


def _unit(seconds: float) -> tuple[str, float]:
    """The unit an axis up to ``seconds`` is read in, and its length in seconds."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= scale:
            return unit, scale
    return "µs", 1e-6
