"""An Explanation as one HTML file without external parts. Needs what ``pip install torch-placer[report]`` brings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from placer.explanation import charts, costs, job_parts
from placer.explanation.data import ExplanationData
from placer.explanation.icicle import Cell, cells
from placer.explanation.layers import Node, gathered, inside, joined, tree
from placer.explanation.page import template
from placer.explanation.provenance import all_calibrated, headings, kind, legend, marked
from placer.explanation.step_parts import ONE_TIME, PARTS, first_step, shown_parts, step_parts
from placer.explanation.sweep import Sweep, answer
from placer.explanation.sweep_text import turns
from placer.explanation.tables import GUESS, SMALL
from placer.explanation.verdict import (
    advice_lines,
    bottleneck_lines,
    bounds_lines,
    machine_parts,
    verdict,
    workload_line,
)
from placer.units import format_bytes, format_seconds

#: A layer with more than this share of the time starts unfolded: many models are one large layer beside a small head.
MOST = 0.9


def render(explanation: ExplanationData, sweep: Sweep | None = None) -> str:
    """The page; ``sweep`` adds its plot. Raises PlacerError without jinja2 or vl-convert."""
    headline, *details = verdict(explanation)
    devices, called = list(explanation.devices), headings(explanation.devices)
    page: str = template("report.html.j2").render(
        headline=headline,
        details=details,
        workload=workload_line(explanation.workload),
        unit=explanation.unit,
        one=explanation.one,
        parts=_parts(explanation),
        apart=job_parts.apart_line(explanation),
        devices=[{"name": called[name], "chosen": name == explanation.decision.device} for name in devices],
        steps=_steps(explanation),
        costs=costs.cells(explanation) if costs.told(explanation) else [],
        costs_title=costs.title(explanation),
        costs_note=costs.ENERGY,
        made_of_svg=charts.made_of(explanation) if devices else "",
        made_of=_made_of(explanation),
        bounded=bounds_lines(explanation),
        first_steps=_first_steps(explanation),
        facts=_facts(explanation),
        all_calibrated=all_calibrated(explanation.devices),
        legend=legend(explanation.devices),
        threads=[
            (row.threads, *map(format_seconds, (row.step_seconds, row.low, row.high)))
            for row in explanation.decision.thread_options
        ],
        icicles=[_icicle(explanation, name) for name in devices],
        layers=_layer(gathered(tree(explanation.layers, None)), devices) if explanation.layers else None,
        ops=[
            {**vars(row), "cells": [format_seconds(row.devices.get(n, 0.0)) for n in devices]}
            for row in explanation.ops
        ],
        timelines=[
            (called.get(name, name), charts.timeline(name, spans))
            for name, spans in explanation.timeline.items()
            if spans
        ],
        sweep_svg=charts.sweep(sweep) if sweep is not None and len(sweep.rows) > 1 else "",
        sweep=_sweep(sweep),
        advice=advice_lines(explanation),
        bottlenecks=bottleneck_lines(explanation),
        notes=explanation.notes,
        machine=_machine(explanation.machine),
    )
    return page + "\n"


def _steps(explanation: ExplanationData) -> list[dict[str, Any]]:
    longest = max((row.step_seconds for row in explanation.devices.values()), default=0.0) or 1.0
    return [
        {"name": marked(name, row.provenance), "step": format_seconds(row.step_seconds),
         "percent": round(100 * row.step_seconds / longest, 2),
         "low": format_seconds(row.low), "high": format_seconds(row.high), "guess": 1.0 - row.coverage > GUESS,
         "chosen": name == explanation.decision.device}
        for name, row in explanation.devices.items()
    ]  # fmt: skip


def _parts(explanation: ExplanationData) -> list[dict[str, Any]]:
    """The parts of a job: seconds and share of the job by device."""
    names = list(explanation.devices)
    return [
        {"name": part.name, "count": f"{part.count:,g}", "fastest": job_parts.fastest(part),
         "cells": [
             {"time": format_seconds(part.seconds(name)), "device": number,
              "percent": round(100 * job_parts.share(explanation, part, name), 2)}
             for number, name in enumerate(names)
         ]}
        for part in explanation.parts
    ]  # fmt: skip


def _made_of(explanation: ExplanationData) -> list[tuple[str, list[str]]]:
    """Rows of the table under the bars: parts, then the step they add up to."""
    names = list(explanation.devices)
    parts = {name: step_parts(explanation, name) for name in names}
    shown = shown_parts(parts)
    rows = [(PARTS.get(key, key), [format_seconds(parts[n].get(key, 0.0)) for n in names]) for key in shown]
    rows.append((explanation.unit, [format_seconds(explanation.devices[name].step_seconds) for name in names]))
    bounds = [explanation.devices[name].bounded_by for name in names]
    return [*rows, ("bounded by", [bound or "-" for bound in bounds])] if any(bounds) else rows


def _first_steps(explanation: ExplanationData) -> dict[str, Any] | None:
    """A table of the first step, its parts that later ones do not have, and a later one, by device."""
    rows = {name: row for name, row in explanation.devices.items() if row.one_time_seconds}
    if not rows:
        return None
    parts = shown_parts({name: row.one_time for name, row in rows.items()})
    lines = []
    for name, row in rows.items():
        seconds = [*(row.one_time.get(key, 0.0) for key in parts), first_step(row) or 0.0, row.step_seconds]
        lines.append((marked(name, row.provenance), list(map(format_seconds, seconds))))
    heads = [*(ONE_TIME.get(key, key) for key in parts), f"first {explanation.unit}", f"later {explanation.unit}"]
    return {"heads": heads, "rows": lines}


def _facts(explanation: ExplanationData) -> list[dict[str, Any]]:
    """Memory and coverage of each device."""
    found = []
    for name, row in explanation.devices.items():
        total = _memory_of(explanation.machine, name)
        found.append({
            "name": marked(name, row.provenance),
            "memory": format_bytes(row.peak_memory_bytes) + ("" if row.fits else ": too much"),
            "memory_total": None if total is None else format_bytes(total),
            "memory_share": None if total is None else min(row.peak_memory_bytes / total, 1.0),
            "in_all": None if row.total_seconds is None else format_seconds(row.total_seconds),
            "coverage": row.coverage,
            "provenance": kind(name, row.provenance),
        })  # fmt: skip
    return found


def _memory_of(machine: Mapping[str, Any], device: str) -> int | None:
    """Bytes of memory a device has; None of one that the profile's machine does not have."""
    if device == "cpu":
        return machine.get("memory_bytes")
    known = {item.get("device"): item.get("memory_bytes") for item in machine.get("accelerators") or []}
    return known.get(device) or None


def _icicle(explanation: ExplanationData, device: str) -> dict[str, Any]:
    found = cells(explanation.layers, device)
    shades: dict[int, int] = {}
    return {
        "name": marked(device, explanation.devices[device].provenance),
        "depth": max((cell.depth for cell in found), default=0) + 1,
        "cells": [_cell(cell, device, shades) for cell in found],
    }


def _cell(cell: Cell, device: str, shades: dict[int, int]) -> dict[str, Any]:
    shades[cell.depth] = shades.get(cell.depth, 0) + 1
    guess = " (a guess)" if cell.guess > GUESS else ""
    text = f"{cell.path or cell.label}: {format_seconds(cell.seconds)}, {cell.width:.1%} of {device}{guess}"
    place = {"depth": cell.depth, "x": f"{cell.x:.5f}", "width": f"{cell.width:.5f}"}
    return {"path": cell.path, "label": cell.label, **place, "text": text, "shade": shades[cell.depth] % 3,
            "guess": bool(guess)}  # fmt: skip


def _layer(root: Node, devices: list[str]) -> dict[str, Any]:
    """A layer with those below it, as rows that unfold; small ones are gathered."""

    def share(node: Node, name: str) -> float:
        return node.seconds.get(name, 0.0) / (root.seconds.get(name) or 1.0)

    def is_small(node: Node) -> bool:
        return all(share(node, name) < SMALL / 10 for name in devices)

    def is_most(node: Node) -> bool:
        return any(share(node, name) > MOST for name in devices)

    def row(node: Node, depth: int) -> dict[str, Any]:
        cells = [
            {"time": format_seconds(node.seconds.get(name, 0.0)), "device": number,
             "percent": round(100 * share(node, name), 2),
             "guess": node.guessed.get(name, 0.0) > GUESS * node.seconds.get(name, 0.0)}
            for number, name in enumerate(devices)
        ]  # fmt: skip
        below = [row(joined(part), depth + 1) for part in inside(node, is_small)]
        return {"label": node.label, "depth": depth, "open": is_most(node), "cells": cells, "below": below}

    return row(root, 0)


def _sweep(sweep: Sweep | None) -> dict[str, Any] | None:
    """The same numbers as the plot, as a table: for screen readers, and for reading off values."""
    if sweep is None or len(sweep.rows) < 2:
        return None
    times = {name: sweep.times(name) for name in sweep.devices}
    rows = []
    for index, (value, row) in enumerate(sweep.rows.items()):
        found = [times[name][index] for name in sweep.devices]
        rows.append(
            (f"{value:,}", ["-" if time is None else format_seconds(time[0]) for time in found], answer(row))
        )
    return {"axis": sweep.axis, "devices": list(sweep.headings.values()), "rows": rows, "turns": turns(sweep)}


def _machine(machine: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The machine's description as terms and values."""
    if not machine:
        return []
    facts = [("Machine", ", ".join(machine_parts({k: v for k, v in machine.items() if k != "calibrated"})))]
    facts += [("Memory", format_bytes(machine["memory_bytes"]))] if machine.get("memory_bytes") else []
    facts += [
        (
            str(item.get("device", "accelerator")),
            f"{item.get('name', '')}, {format_bytes(item.get('memory_bytes') or 0)}",
        )
        for item in machine.get("accelerators") or []
    ]
    named = (("threads", "CPU threads"), ("calibrated", "Calibrated"), ("profile", "Profile"))
    return [*facts, *((words, str(machine[key])) for key, words in named if machine.get(key))]
