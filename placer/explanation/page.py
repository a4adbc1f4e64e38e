"""A page in one HTML file without external parts, for a step, a job or a fleet: an answer, then sections of one shape.

Plots are drawn by Vega-Lite without a browser, once for a desktop and once for a phone, where a scaled one could not be
read. Their colours are CSS variables, so that they follow the page from light to dark. Needs what
``pip install torch-placer[report]`` brings: jinja2 and vl-convert.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any

from placer.errors import PlacerError
from placer.explanation.data import ExplanationData, SpanRow
from placer.explanation.sweep import Sweep
from placer.explanation.tables import sections
from placer.explanation.words import headings
from placer.sections import Section
from placer.units import format_seconds

#: Pixels between the axes of a plot, by the class that the style sheet shows on such a screen.
WIDTHS = {"broad": 820, "narrow": 270}
#: Colours of devices in order, and of phases, by the names the style sheet gives them.
DEVICE_COLOURS = tuple(f"var(--device-{n})" for n in range(4))
PHASE_COLOURS = {
    "forward": "var(--part-0)", "loss": "var(--part-6)", "backward": "var(--part-1)", "optimizer": "var(--part-3)",
    "copy or wait": "var(--part-5)",
}  # fmt: skip
#: Units of time, in seconds, and the round numbers of them at which a log scale has marks.
UNITS = {"ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
ROUND = (1, 2, 5, 10, 20, 50, 100, 200, 500)
_CONFIG = {
    "background": None,
    "font": "system-ui, sans-serif",
    "axis": {"labelColor": "currentColor", "titleColor": "currentColor", "gridColor": "var(--line)",
             "domainColor": "var(--line)", "tickColor": "var(--line)", "labelFontSize": 12, "titleFontSize": 12,
             "titleFontWeight": "normal", "titlePadding": 10},
    "legend": {"disable": True},
    "view": {"stroke": None},
}  # fmt: skip


def check_packages() -> None:
    """Raise PlacerError where a package that draws pages is not installed."""
    for module, package in (("jinja2", "jinja2"), ("vl_convert", "vl-convert-python")):
        if find_spec(module) is None:
            raise PlacerError(f"the html report needs {package}; run: pip install 'torch-placer[report]'")


def render_page(sections: Sequence[Section]) -> str:
    """The page: the first section is its head. Raises PlacerError without jinja2 or vl-convert."""
    check_packages()
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("placer.explanation", "report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    answer, *others = sections
    page = environment.get_template("page.html.j2").render(answer=answer, sections=others)
    return page + "\n"


def _svg(spec: Mapping[str, Any], title: str) -> str:
    """A Vega-Lite specification as an SVG element for each width, which a screen reader introduces by ``title``."""
    check_packages()
    import vl_convert

    elements = []
    for name, width in WIDTHS.items():
        full = {"width": width, "config": _CONFIG, "description": title, **spec}
        drawn: str = vl_convert.vegalite_to_svg(full)
        # HTML knows both namespaces; without them the page holds nothing that looks like a web address.
        for namespace in (' xmlns="http://www.w3.org/2000/svg"', ' xmlns:xlink="http://www.w3.org/1999/xlink"'):
            drawn = drawn.replace(namespace, "", 1)
        elements.append(drawn.replace('class="marks"', f'class="{name}" role="figure"', 1))
    return "".join(elements)


def explanation_page(explanation: ExplanationData, sweep: Sweep | None = None) -> str:
    """An explanation as a page; ``sweep`` adds its plot. Raises PlacerError without jinja2 or vl-convert."""
    called = headings(explanation.devices)
    answer, details, *tables = sections(explanation, verify="")
    plots = []
    if sweep is not None and len(sweep.rows) > 1:
        table, *_ = sweep.sections()
        colours = dict(zip(sweep.headings.values(), DEVICE_COLOURS, strict=False))
        curves = [("", _curves(sweep, colours))]
        plots += [Section(f"By {sweep.axis}", words=sweep.verdict(), colours=colours, plots=curves), table]
    timelines = {name: spans for name, spans in explanation.timeline.items() if spans}
    drawn = {_phase(span) for spans in timelines.values() for span in spans}
    plots.append(
        Section(
            "One step in time",
            words="The host issues operations ahead of an accelerator; a gap in its row is time that it waits.",
            colours={phase: colour for phase, colour in PHASE_COLOURS.items() if phase in drawn},
            plots=[(called[name], _timeline(name, spans)) for name, spans in timelines.items()],
        )
    )
    return render_page([answer, details, *plots, *tables])


def _phase(span: SpanRow) -> str:
    return span.phase or "copy or wait"


def _timeline(device: str, spans: Sequence[SpanRow]) -> str:
    """What the host and the device do within one step."""
    unit, scale = _axis_unit(max(span.start + span.seconds for span in spans))
    values = [
        {
            "lane": span.lane,
            "phase": _phase(span),
            "from": span.start / scale,
            "to": (span.start + span.seconds) / scale,
            "what": f"{span.lane}, {span.phase} {span.label or 'whole model'}: {format_seconds(span.seconds)}",
        }
        for span in spans
    ]
    encoding = {
        "y": {"field": "lane", "type": "nominal", "sort": ["host", "device"], "title": None},
        "x": _quantitative("from", f"since the step began, {unit}", axis={"tickCount": {"expr": "width / 60"}}),
        "x2": {"field": "to"},
        "color": _nominal("phase", PHASE_COLOURS),
        "description": {"field": "what"},
    }
    mark = {"type": "bar", "stroke": "var(--paper)", "strokeWidth": 0.3}
    spec = {"data": {"values": values}, "height": {"step": 34}, "mark": mark, "encoding": encoding}
    return _svg(spec, f"When a step does what on {device}")


def _curves(sweep: Sweep, colours: Mapping[str, str]) -> str:
    """The curves of all devices with their 90 % intervals on log scales; a rule where the choice turns."""
    called = sweep.headings
    values = []
    for name, heading in called.items():
        for value, (seconds, low, high) in zip(sweep.rows, sweep.times(name), strict=True):
            point = {
                "x": value,
                "device": heading,
                "seconds": seconds,
                "low": low,
                "high": high,
                "what": f"{name}, {sweep.named(value)}: {format_seconds(seconds)}",
            }
            values.append(point)
    ticks = {"values": list(sweep.rows), "labelOverlap": True, "format": ",d"}
    x = _quantitative("x", sweep.axis, scale={"type": "log", "nice": False}, axis=ticks)
    title = "time in all" if sweep.in_all else f"time of {'the job' if sweep.part else 'a step'}"
    times = [time for name in called for time in sweep.times(name)]
    marks = _marks(min(low for _, low, _ in times), max(high for _, _, high in times))
    ends = {"type": "log", "domain": [marks[0], marks[-1]]}
    labels = {"values": marks, "labelOverlap": True, "labelExpr": _mark_text()}
    y = _quantitative("seconds", title, scale=ends, axis=labels)
    colour = _nominal("device", colours)
    line, between = {"x": x, "y": y, "color": colour}, {"y": {**y, "field": "low"}, "y2": {"field": "high"}}
    band = {"type": "area", "fillOpacity": 0.2, "strokeOpacity": 0.7, "strokeWidth": 1}
    point = {"type": "point", "filled": True, "size": 50, "opacity": 1}
    layers: list[dict[str, Any]] = [
        {"mark": band, "encoding": {**line, **between, "stroke": colour}},
        {"mark": {"type": "line", "strokeWidth": 2}, "encoding": line},
        {"mark": point, "encoding": {**line, "description": {"field": "what"}}},
    ]
    if turning := [{"x": sweep.turn(value) or value} for value, _ in sweep.crossovers()[1:]]:
        rule = {"type": "rule", "strokeDash": [4, 4], "color": "currentColor"}
        layers.append({"data": {"values": turning}, "mark": rule, "encoding": {"x": x}})
    return _svg({"data": {"values": values}, "height": 260, "layer": layers}, f"Time by {sweep.axis}")


def _quantitative(field: str, title: str, **more: Any) -> dict[str, Any]:
    """An axis of numbers; ``more`` are its scale and ticks."""
    return {"field": field, "type": "quantitative", "title": title, **more}


def _nominal(field: str, colours: Mapping[str, str]) -> dict[str, Any]:
    """The colours of what a field names, in order."""
    scale = {"domain": list(colours), "range": list(colours.values())}
    return {"field": field, "type": "nominal", "sort": None, "scale": scale}


def _marks(low: float, high: float) -> list[float]:
    """Round times in seconds for a log scale, from the last one up to ``low`` to the first one from ``high`` on."""
    times = []
    for scale, following in itertools.pairwise([*UNITS.values(), math.inf]):
        times += [number * scale for number in ROUND if number * scale <= following / 2.0]
    first = max((time for time in times if time <= low), default=low)
    last = min((time for time in times if time >= high), default=high)
    return [first, *(time for time in times if first < time < last), last]


def _mark_text() -> str:
    """How Vega writes such a time: ``20 ms``."""
    text = "''"
    for unit, scale in UNITS.items():
        text = f"datum.value >= {scale} ? format(datum.value / {scale}, '.3~g') + ' {unit}' : {text}"
    return text


def _axis_unit(seconds: float) -> tuple[str, float]:
    """The unit in which an axis of about ``seconds`` is read, and its length in seconds."""
    units = [unit for unit, scale in UNITS.items() if scale <= seconds]
    unit = units[-1] if units else "ns"
    return unit, UNITS[unit]
