"""A page in one HTML file without external parts, for a step, a job or a fleet: an answer, then sections of one shape.

Plots are drawn by Vega-Lite without a browser. Their colours are CSS variables, so that they follow the page from light
to dark. Needs what ``pip install torch-placer[report]`` brings: jinja2 and vl-convert.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from placer.errors import PlacerError
from placer.explanation.console import GUESS, SMALL
from placer.explanation.data import ExplanationData, SpanRow
from placer.explanation.layers import Node, gathered, inside, joined, tree
from placer.explanation.sentences import (
    ONE_TIME,
    PARTS,
    advice_lines,
    all_calibrated,
    apart_line,
    bottleneck_lines,
    bounds_lines,
    fastest,
    first_step,
    headings,
    kind,
    legend,
    machine_parts,
    marked,
    share,
    shown_parts,
    step_parts,
    verdict,
    workload_line,
)
from placer.explanation.sweep import Sweep, answer, turns
from placer.explanation.text import COST_HEADS, ENERGY, cost_cells, costs_title, costs_told
from placer.pricing import NOT_PREDICTED
from placer.units import format_bytes, format_seconds

WIDTH = 820
#: Colours of devices in order, of parts and of phases, by the names the style sheet gives them.
DEVICE_COLOURS = tuple(f"var(--device-{n})" for n in range(4))
_PARTS = ("arithmetic", "memory", "overhead", "optimizer", "dispatch", "copy", "sync", "compute", NOT_PREDICTED)
PART_COLOURS = {name: f"var(--part-{n})" for n, name in enumerate(_PARTS)}
PHASE_COLOURS = {
    "forward": "var(--part-0)", "loss": "var(--part-6)", "backward": "var(--part-1)", "optimizer": "var(--part-3)",
    "copy or wait": "var(--part-5)",
}  # fmt: skip
#: A layer with more than this share of the time starts unfolded: many models are one large layer beside a small head.
MOST = 0.9
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


@dataclass(frozen=True)
class Section:
    """A part of a page: words, plots (a heading and an SVG each), a table, a list, and words below them.

    Rows of the table are cells, those at ``strong`` in bold. With ``fold``, the table unfolds under these words.
    """

    title: str
    words: str = ""
    plots: Sequence[tuple[str, str]] = ()
    heads: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    strong: Sequence[int] = ()
    fold: str = ""
    wordy: bool = False
    items: Sequence[str] = ()
    after: Sequence[str] = ()


def render_page(headline: str, details: Sequence[str], workload: str, sections: Sequence[Section], **more: Any) -> str:
    """The page; ``more`` are the bars of the devices, the layers and the last words of an explanation.

    Raises PlacerError without jinja2.
    """
    try:
        import jinja2
    except ImportError:
        raise PlacerError("the html report needs jinja2; run: pip install 'torch-placer[report]'") from None
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("placer.explanation", "report"), autoescape=True,
        undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    empty: dict[str, Any] = {"bars": [], "icicles": [], "layers": None, "devices": [], "foot": ""}
    page = environment.get_template("page.html.j2").render(
        {**empty, **more}, headline=headline, details=details, workload=workload,
        sections=[section for section in sections if section.rows or section.items or section.plots],
    )  # fmt: skip
    return page + "\n"


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


def render(explanation: ExplanationData, sweep: Sweep | None = None) -> str:
    """An explanation as a page; ``sweep`` adds its plot. Raises PlacerError without jinja2 or vl-convert."""
    headline, *details = verdict(explanation)
    devices = list(explanation.devices)
    marks = " ".join(legend(explanation.devices))
    return render_page(
        headline, details, workload_line(explanation.workload), list(_sections(explanation, sweep)),
        bars=_bars(explanation) if len(devices) > 1 else [],
        devices=list(headings(explanation.devices).values()),
        icicles=[_icicle(explanation, name) for name in devices] if explanation.layers else [],
        layers=_layer(gathered(tree(explanation.layers, None)), devices) if explanation.layers else None,
        foot="Times are predictions. ~ marks a time of which more than a tenth is a guess: operations that were not "
             f"measured in that range. {marks}",
    )  # fmt: skip


def _sections(explanation: ExplanationData, sweep: Sweep | None) -> Iterator[Section]:
    """The sections below the layers, in order."""
    names, rows, unit = list(explanation.devices), explanation.devices, explanation.unit
    called = headings(rows)
    columns = [called[name] for name in names]
    if costs_told(explanation):
        heads = ["device", *COST_HEADS[1:-1], "beside the choice"]
        yield Section(costs_title(explanation), heads=heads, rows=cost_cells(explanation), wordy=True, after=[ENERGY])
    heads = ["part", "steps", *(head for column in columns for head in (column, "share")), "fastest on"]
    job = [
        [part.name, f"{part.count:,g}", *_part_cells(explanation, part, names), fastest(part)]
        for part in explanation.parts
    ]  # fmt: skip
    apart = apart_line(explanation) if explanation.parts else None
    yield Section("Parts of the job", heads=heads, rows=job, after=[apart] if apart else [])
    if names:
        parts = {name: step_parts(explanation, name) for name in names}
        made = [
            [PARTS.get(key, key), *(format_seconds(parts[name].get(key, 0.0)) for name in names)]
            for key in shown_parts(parts)
        ]  # fmt: skip
        made.append([unit, *(format_seconds(rows[name].step_seconds) for name in names)])
        total = len(made) - 1
        if any(rows[name].bounded_by for name in names):
            made.append(["bounded by", *(rows[name].bounded_by or "-" for name in names)])
        yield Section(
            f"What {explanation.one} is made of", plots=[("", _made_of(explanation))], heads=["part", *columns],
            rows=made, strong=[total], after=bounds_lines(explanation),
        )  # fmt: skip
    once = [name for name in names if rows[name].one_time_seconds]
    keys = shown_parts({name: rows[name].one_time for name in once})
    first = [
        [called[name], *(format_seconds(rows[name].one_time.get(key, 0.0)) for key in keys),
         format_seconds(first_step(rows[name]) or 0.0), format_seconds(rows[name].step_seconds)]
        for name in once
    ]  # fmt: skip
    yield Section(
        f"The first {unit} and the later ones",
        f"What a process pays once, until its first {unit} is done. What a CPU's first step takes longer is not "
        "measured.",
        heads=["device", *(ONE_TIME.get(key, key) for key in keys), f"first {unit}", f"later {unit}"], rows=first,
    )  # fmt: skip
    yield Section(
        "One step in time",
        "On an accelerator the host issues operations ahead of the device; a gap in its row is time it waits.",
        plots=[(called.get(n, n), _timeline(n, spans)) for n, spans in explanation.timeline.items() if spans],
    )
    if sweep is not None and len(sweep.rows) > 1:
        yield _sweep(sweep)
    threads = [
        [str(option.threads), *map(format_seconds, (option.step_seconds, option.low, option.high))]
        for option in explanation.decision.thread_options
    ]  # fmt: skip
    yield Section(
        "A step on the CPU by number of threads", heads=["threads", "step", "90% from", "90% to"], rows=threads
    )
    yield Section("Where most of it goes", items=bottleneck_lines(explanation))
    yield Section("What would make it faster", items=advice_lines(explanation))
    yield _facts(explanation)
    ops = [
        [row.op, row.family, str(row.count),
         *(format_seconds(row.devices.get(name, 0.0)) for name in names), row.source]
        for row in explanation.ops
    ]  # fmt: skip
    yield Section(
        "Operators", heads=["op", "family", "calls", *columns, "price"], rows=ops, fold=f"{len(ops)} operators"
    )
    yield Section("Notes", items=explanation.notes)
    yield Section("Measured on", rows=_machine(explanation.machine), wordy=True)


def _part_cells(explanation: ExplanationData, part: Any, names: Sequence[str]) -> Iterator[str]:
    for name in names:
        yield format_seconds(part.seconds(name))
        yield f"{share(explanation, part, name):.0%}"


def _bars(explanation: ExplanationData) -> list[dict[str, Any]]:
    longest = max((row.step_seconds for row in explanation.devices.values()), default=0.0) or 1.0
    return [
        {"name": marked(name, row.provenance), "step": format_seconds(row.step_seconds),
         "percent": round(100 * row.step_seconds / longest, 2),
         "low": format_seconds(row.low), "high": format_seconds(row.high), "guess": 1.0 - row.coverage > GUESS,
         "chosen": name == explanation.decision.device}
        for name, row in explanation.devices.items()
    ]  # fmt: skip


def _facts(explanation: ExplanationData) -> Section:
    """Memory and coverage of each device."""
    calibrated = all_calibrated(explanation.devices)
    in_all = any(row.total_seconds is not None for row in explanation.devices.values())
    heads = ["device", "memory needed", *(["in all"] if in_all else []), *([] if calibrated else ["numbers"]),
             f"backed by {'calibration' if calibrated else 'measurements'}"]  # fmt: skip
    rows = []
    for name, row in explanation.devices.items():
        total = _memory_of(explanation.machine, name)
        memory = format_bytes(row.peak_memory_bytes) + ("" if row.fits else ": too much")
        memory += "" if total is None else f" of {format_bytes(total)}"
        cells = [marked(name, row.provenance), memory]
        if in_all:
            cells.append("-" if row.total_seconds is None else format_seconds(row.total_seconds))
        if not calibrated:
            cells.append(kind(name, row.provenance))
        rows.append([*cells, f"{row.coverage:.0%}"])
    return Section("Memory and coverage", heads=heads, rows=rows)


def _memory_of(machine: Mapping[str, Any], device: str) -> int | None:
    """Bytes of memory a device has; None of one that the profile's machine does not have."""
    if device == "cpu":
        return machine.get("memory_bytes")
    known = {item.get("device"): item.get("memory_bytes") for item in machine.get("accelerators") or []}
    return known.get(device) or None


def _machine(machine: Mapping[str, Any]) -> list[list[str]]:
    """The machine's description as terms and values."""
    if not machine:
        return []
    facts = [["Machine", ", ".join(machine_parts({k: v for k, v in machine.items() if k != "calibrated"}))]]
    if machine.get("memory_bytes"):
        facts.append(["Memory", format_bytes(machine["memory_bytes"])])
    for item in machine.get("accelerators") or []:
        size = format_bytes(item.get("memory_bytes") or 0)
        facts.append([str(item.get("device", "accelerator")), f"{item.get('name', '')}, {size}"])
    named = (("threads", "CPU threads"), ("calibrated", "Calibrated"), ("profile", "Profile"))
    return [*facts, *([words, str(machine[key])] for key, words in named if machine.get(key))]


def _icicle(explanation: ExplanationData, device: str) -> dict[str, Any]:
    """The layers of a device as an icicle plot: each layer below the one it is in, its width its share of the time."""
    root = tree(explanation.layers, None)
    whole = root.seconds.get(device, 0.0)
    cells = [] if whole <= 0.0 else list(_cells(root, device, whole, "", 0, 0.0))
    for number, cell in enumerate(cells):
        cell["shade"] = sum(other["depth"] == cell["depth"] for other in cells[:number]) % 3
    return {
        "name": marked(device, explanation.devices[device].provenance),
        "depth": max((cell["depth"] for cell in cells), default=0) + 1,
        "cells": cells,
    }


def _cells(node: Node, device: str, whole: float, path: str, depth: int, x: float) -> Iterator[dict[str, Any]]:
    """A layer, then those inside it, from ``x`` on: shares of the whole. What a layer issues itself is a gap."""
    seconds = node.seconds.get(device, 0.0)
    if seconds / whole < NARROWEST:
        return
    guess = node.guessed.get(device, 0.0) / seconds > GUESS
    text = f"{path or node.label}: {format_seconds(seconds)}, {seconds / whole:.1%} of {device}"
    yield {"path": path, "label": node.label, "depth": depth, "x": f"{x:.5f}", "width": f"{seconds / whole:.5f}",
           "text": text + (" (a guess)" if guess else ""), "guess": guess}  # fmt: skip
    for label, child in node.children.items():
        below = f"{path}.{label}" if path else label
        yield from _cells(child, device, whole, below, depth + 1, x)
        x += child.seconds.get(device, 0.0) / whole


def _layer(root: Node, devices: list[str]) -> dict[str, Any]:
    """A layer with those below it, as rows that unfold; small ones are gathered."""

    def part(node: Node, name: str) -> float:
        return node.seconds.get(name, 0.0) / (root.seconds.get(name) or 1.0)

    def is_small(node: Node) -> bool:
        return all(part(node, name) < SMALL / 10 for name in devices)

    def row(node: Node, depth: int) -> dict[str, Any]:
        cells = [
            {"time": format_seconds(node.seconds.get(name, 0.0)), "device": number,
             "percent": round(100 * part(node, name), 2),
             "guess": node.guessed.get(name, 0.0) > GUESS * node.seconds.get(name, 0.0)}
            for number, name in enumerate(devices)
        ]  # fmt: skip
        unfolded = any(part(node, name) > MOST for name in devices)
        below = [row(joined(child), depth + 1) for child in inside(node, is_small)]
        return {"label": node.label, "depth": depth, "open": unfolded, "cells": cells, "below": below}

    return row(root, 0)


def _made_of(explanation: ExplanationData) -> str:
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


def _timeline(device: str, spans: Sequence[SpanRow]) -> str:
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


def _sweep(found: Sweep) -> Section:
    """The curves of all devices, and the same numbers as a table: for screen readers, and for reading off values."""
    times = {name: found.times(name) for name in found.devices}
    rows = []
    for index, (value, row) in enumerate(found.rows.items()):
        each = [times[name][index] for name in found.devices]
        rows.append(
            [f"{value:,}", *("-" if time is None else format_seconds(time[0]) for time in each), answer(row)]
        )
    return Section(
        f"By {found.axis}", turns(found), [("", _curves(found))],
        heads=[found.axis, *found.headings.values(), "faster"], rows=rows, fold="The same as a table",
    )  # fmt: skip


def _curves(found: Sweep) -> str:
    """The curves of all devices with their 90 % intervals on log scales; a rule where the choice turns."""
    unit, scale = _unit(max(time[0] for name in found.devices for time in found.times(name) if time is not None))
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
    turning = [{"x": found.turn(value) or value} for value, _ in found.crossovers()[1:]]
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
    return svg({"data": {"values": values}, "height": 260, "layer": layers if turning else layers[:-1]},
               f"Time by {found.axis}")  # fmt: skip


def _unit(seconds: float) -> tuple[str, float]:
    """The unit an axis up to ``seconds`` is read in, and its length in seconds."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= scale:
            return unit, scale
    return "µs", 1e-6
