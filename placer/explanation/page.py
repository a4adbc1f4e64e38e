"""A page in one HTML file without external parts, for a step, a job or a fleet: an answer, then sections of one shape.

Plots are drawn by Vega-Lite without a browser. Their colours are CSS variables, so that they follow the page from light
to dark. Needs what ``pip install torch-placer[report]`` brings: jinja2 and vl-convert.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from typing import Any

from placer.errors import PlacerError
from placer.explanation.data import ExplanationData, SpanRow
from placer.explanation.layers import Node, tree
from placer.explanation.sections import GUESS, Section, sections, steps
from placer.explanation.sentences import details, headings, headline, workload_line
from placer.explanation.sweep import Sweep, table, turns
from placer.units import format_seconds

WIDTH = 820
#: Colours of devices in order, and of phases, by the names the style sheet gives them.
DEVICE_COLOURS = tuple(f"var(--device-{n})" for n in range(4))
PHASE_COLOURS = {
    "forward": "var(--part-0)", "loss": "var(--part-6)", "backward": "var(--part-1)", "optimizer": "var(--part-3)",
    "copy or wait": "var(--part-5)",
}  # fmt: skip
#: A layer narrower than this share of the whole is not drawn: it would take less than a pixel.
NARROWEST = 0.0005
#: So few ticks that every label has room.
_TICKS = {"tickCount": 8}
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


def check_packages() -> None:
    """Raise PlacerError where a package that draws pages is not installed."""
    for module, package in (("jinja2", "jinja2"), ("vl_convert", "vl-convert-python")):
        if find_spec(module) is None:
            raise PlacerError(f"the html report needs {package}; run: pip install 'torch-placer[report]'")


def render_page(answer: str, below: Sequence[str], workload: str, sections: Sequence[Section], **more: Any) -> str:
    """The page, with lines ``below`` its answer; ``more`` are an explanation's steps of the devices and icicles.

    Raises PlacerError without jinja2 or vl-convert.
    """
    check_packages()
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("placer.explanation", "report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    page = environment.get_template("page.html.j2").render(
        {"steps": Section(""), "icicles": [], **more},
        headline=answer,
        details=below,
        workload=workload,
        sections=sections,
    )
    return page + "\n"


def svg(spec: Mapping[str, Any], title: str) -> str:
    """A Vega-Lite specification as an SVG element that a screen reader introduces by ``title``."""
    check_packages()
    import vl_convert

    full = {"width": WIDTH, "config": _CONFIG, "description": title, **spec}
    drawn: str = vl_convert.vegalite_to_svg(full)
    # HTML knows both namespaces; without them the page holds nothing that looks like a web address.
    for namespace in (' xmlns="http://www.w3.org/2000/svg"', ' xmlns:xlink="http://www.w3.org/1999/xlink"'):
        drawn = drawn.replace(namespace, "", 1)
    return drawn.replace("<svg ", '<svg role="figure" ', 1)


def render(explanation: ExplanationData, sweep: Sweep | None = None) -> str:
    """An explanation as a page; ``sweep`` adds its plot. Raises PlacerError without jinja2 or vl-convert."""
    called = headings(explanation.devices)
    plots = [
        Section(
            "One step in time",
            "On an accelerator the host issues operations ahead of the device; a gap in its row is time it waits.",
            plots=[(called[name], _timeline(name, spans)) for name, spans in explanation.timeline.items() if spans],
        )
    ]
    if sweep is not None and len(sweep.rows) > 1:
        plots.append(Section(f"By {sweep.axis}", turns(sweep), [("", _curves(sweep))]))
        plots.append(table(sweep))
    return render_page(
        headline(explanation),
        details(explanation),
        workload_line(explanation.workload),
        [*plots, *sections(explanation)],
        steps=steps(explanation) if len(called) > 1 else Section(""),
        icicles=[_icicle(explanation, name, head) for name, head in called.items()] if explanation.layers else [],
    )


def _icicle(explanation: ExplanationData, device: str, heading: str) -> dict[str, Any]:
    """The layers of a device as an icicle plot: each layer below the one it is in, its width its share of the time."""
    root = tree(explanation.layers, None)
    whole = root.seconds.get(device, 0.0)
    cells = [] if whole <= 0.0 else list(_cells(root, device, whole, "", 0, 0.0))
    for number, cell in enumerate(cells):
        cell["shade"] = sum(other["depth"] == cell["depth"] for other in cells[:number]) % 3
    return {"name": heading, "depth": max((cell["depth"] for cell in cells), default=0) + 1, "cells": cells}


def _cells(node: Node, device: str, whole: float, path: str, depth: int, x: float) -> Iterator[dict[str, Any]]:
    """A layer, then those inside it, from ``x`` on: shares of the whole. What a layer issues itself is a gap."""
    seconds = node.seconds.get(device, 0.0)
    if seconds / whole < NARROWEST:
        return
    guess = node.guessed.get(device, 0.0) / seconds > GUESS
    text = f"{path or node.label}: {format_seconds(seconds)}, {seconds / whole:.1%} of {device}"
    yield {
        "path": path,
        "label": node.label,
        "depth": depth,
        "x": f"{x:.5f}",
        "width": f"{seconds / whole:.5f}",
        "text": text + (" (a guess)" if guess else ""),
        "guess": guess,
    }
    for label, child in node.children.items():
        below = f"{path}.{label}" if path else label
        yield from _cells(child, device, whole, below, depth + 1, x)
        x += child.seconds.get(device, 0.0) / whole


def _timeline(device: str, spans: Sequence[SpanRow]) -> str:
    """What the host and the device do within one step."""
    unit, scale = axis_unit(max(span.start + span.seconds for span in spans))
    values = [
        {
            "lane": span.lane,
            "phase": span.phase or "copy or wait",
            "from": span.start / scale,
            "to": (span.start + span.seconds) / scale,
            "what": f"{span.lane}, {span.phase} {span.label or 'whole model'}: {format_seconds(span.seconds)}",
        }
        for span in spans
    ]
    phases = [phase for phase in PHASE_COLOURS if any(value["phase"] == phase for value in values)]
    return svg(
        {
            "data": {"values": values},
            "height": {"step": 34},
            "mark": {"type": "bar", "stroke": "var(--paper)", "strokeWidth": 0.5},
            "encoding": {
                "y": {"field": "lane", "type": "nominal", "sort": ["host", "device"], "title": None},
                "x": {
                    "field": "from",
                    "type": "quantitative",
                    "title": f"since the step began, {unit}",
                    "axis": _TICKS,
                },
                "x2": {"field": "to"},
                "color": {
                    "field": "phase",
                    "type": "nominal",
                    "sort": None,
                    "scale": {"domain": phases, "range": [PHASE_COLOURS[phase] for phase in phases]},
                },
                "description": {"field": "what"},
            },
        },
        f"When a step does what on {device}",
    )


def _curves(sweep: Sweep) -> str:
    """The curves of all devices with their 90 % intervals on log scales; a rule where the choice turns."""
    called = sweep.headings
    unit, scale = axis_unit(max(time[0] for name in called for time in sweep.times(name) if time is not None))
    values = [
        {
            "x": value,
            "device": called[name],
            "seconds": time[0] / scale,
            "low": time[1] / scale,
            "high": time[2] / scale,
            "what": f"{name}, {sweep.named(value)}: {format_seconds(time[0])}",
        }
        for name in called
        for value, time in zip(sweep.rows, sweep.times(name), strict=True)
        if time is not None
    ]
    x = {
        "field": "x",
        "type": "quantitative",
        "scale": {"type": "log", "nice": False},
        "axis": {"values": list(sweep.rows), "labelOverlap": True, "format": ",d"},
        "title": sweep.axis,
    }
    colour = {
        "field": "device",
        "type": "nominal",
        "sort": None,
        "scale": {"domain": list(called.values()), "range": list(DEVICE_COLOURS[: len(called)])},
    }
    y = {
        "type": "quantitative",
        "scale": {"type": "log"},
        "axis": {"tickCount": 5},
        "title": f"{unit} in all" if sweep.in_all else f"{unit} of {'the job' if sweep.part else 'a step'}",
    }
    turning = [{"x": sweep.turn(value) or value} for value, _ in sweep.crossovers()[1:]]
    layers: list[dict[str, Any]] = [
        {"mark": {"type": "area", "opacity": 0.2}, "encoding": {"x": x, "y": {"field": "low", **y},
                                                               "y2": {"field": "high"}, "color": colour}},
        {"mark": {"type": "line", "strokeWidth": 2},
         "encoding": {"x": x, "y": {"field": "seconds", **y}, "color": colour}},
        {"mark": {"type": "point", "filled": True, "size": 50, "opacity": 1},
         "encoding": {"x": x, "y": {"field": "seconds", **y}, "color": colour, "description": {"field": "what"}}},
        {"data": {"values": turning}, "mark": {"type": "rule", "strokeDash": [4, 4], "color": "currentColor"},
         "encoding": {"x": {**x, "field": "x"}}},
    ]  # fmt: skip
    return svg(
        {"data": {"values": values}, "height": 260, "layer": layers if turning else layers[:-1]},
        f"Time by {sweep.axis}",
    )


def axis_unit(seconds: float) -> tuple[str, float]:
    """The unit in which an axis of about ``seconds`` is read, and its length in seconds."""
    for unit, scale in (("days", 86400.0), ("hours", 3600.0), ("min", 60.0), ("s", 1.0), ("ms", 1e-3)):
        if seconds >= scale:
            return unit, scale
    return "µs", 1e-6
