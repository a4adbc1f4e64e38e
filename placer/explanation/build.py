"""A table of predictions -> its Explanation: what each layer and each op costs on each device, and when it runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from placer.decision import JOB, TIME, Advice, Apart, Decision, Objective, Table, decide_apart, worth_it
from placer.explanation.data import Bottleneck, LayerRow, OpRow, PartRow, SpanRow
from placer.explanation.explanation import Explanation
from placer.pricing import SOURCES, Cost, Prediction, PricedTrace, Span, backed, compute_parts, timeline
from placer.profile import DeviceFit
from placer.units import format_bytes, format_seconds

#: Phases in the order of a step.
PHASES = ("forward", "loss", "backward", "optimizer")
#: An op of one layer is a bottleneck with at least this share of its phase, which has at least the second share of the
#: step's compute and the third number of different ops: of one or two, one always takes most of the time.
SHARE, PHASE_SHARE, LEAST_OPS = 0.5, 0.1, 3
#: Most spans of a device in its timeline. Consecutive ops of one layer are merged; the layer is told as deep as the
#: number allows.
MOST_SPANS = 160
_DEEPEST = 6


def explain_table(
    table: Table, decision: Decision, machine: Mapping[str, Any], apart: Apart | None = None,
    advice: tuple[Advice, ...] = (), *, with_timeline: bool = True,
) -> Explanation:  # fmt: skip
    """Why a step or a job runs as ``decision`` says, or its parts ``apart``. Of a job a step is the whole job.

    Its parts are then the outermost layers. Layers and ops add up to a device's compute component, as those of a step.
    """
    of_job = table.unit is JOB
    each = [
        build(
            part.predictions, decision, part.facts, machine, (*table.notes, *part.notes), objective=table.objective,
            with_timeline=with_timeline and not of_job,
        )
        for part in table.parts
    ]  # fmt: skip
    if not of_job:
        return replace(each[0], advice=advice)
    names = list(table.costs)
    counts = [part.count for part in table.parts]
    labels = [part.name.replace(".", " ") for part in table.parts]
    chosen = decision if apart is None else decide_apart(table, apart, decision)
    better = worth_it(table, decision) if apart is None else replace(apart, chosen=True)
    bounds = {name: _job_bounds(counts, each, name) for name in names}
    return Explanation(
        workload=dict(table.facts),
        decision=chosen,
        devices={name: table.objective.told(cost) for name, cost in table.costs.items()},
        layers=tuple(_job_layers(labels, counts, each, names)),
        ops=_job_ops(counts, each, names),
        notes=tuple(dict.fromkeys(_job_notes(labels, each))),
        machine=dict(machine),
        bottlenecks=tuple(_job_bottlenecks(labels, counts, each, chosen.device)),
        bounds={name: found for name, found in bounds.items() if found},
        advice=(*([] if better is None or better.chosen else [_apart_advice(table, better, decision)]), *advice),
        parts=tuple(
            PartRow(part.name, part.count, {name: one.devices[name] for name in names}, one.workload)
            for part, one in zip(table.parts, each, strict=True)
        ),
        apart=better,
    )


def build(
    predictions: Mapping[str, Prediction],
    decision: Decision,
    workload: Mapping[str, Any],
    machine: Mapping[str, Any],
    notes: tuple[str, ...] = (),
    *,
    objective: Objective = TIME,
    with_timeline: bool = True,
) -> Explanation:
    """The Explanation of a decision on one step."""
    found = (*notes, *_trace_notes(predictions), *_coverage_notes(predictions))
    return Explanation(
        workload=dict(workload),
        decision=decision,
        devices={name: objective.told(prediction) for name, prediction in predictions.items()},
        layers=_layer_rows(predictions),
        ops=_op_rows(predictions),
        notes=tuple(dict.fromkeys(found)),
        machine=dict(machine),
        bottlenecks=find_bottlenecks(predictions),
        bounds={n: compute_parts(p.priced, p.priced.fit) for n, p in predictions.items() if p.priced.fit is not None},
        timeline=schedule(predictions, str(workload.get("data", "host"))) if with_timeline else {},
    )


def device_row(prediction: Cost, objective: Objective = TIME) -> Cost:
    """What an explanation keeps of a prediction, or of the total of several."""
    return objective.told(prediction)


def uncalibrated_ops(predictions: Mapping[str, Prediction]) -> dict[str, float]:
    """Seconds by name of the ops priced without measurements in range, the largest first."""
    seconds: dict[str, float] = {}
    for prediction in predictions.values():
        priced = prediction.priced
        for call, price, source in zip(priced.trace.calls, priced.seconds, priced.sources, strict=True):
            if not backed(source, prediction.provenance):
                seconds[call.op] = seconds.get(call.op, 0.0) + price
    return dict(sorted(seconds.items(), key=lambda item: -item[1]))


@dataclass
class _Sum:
    """Seconds by device, and the part of them whose price nobody measured."""

    devices: dict[str, float]
    guessed: dict[str, float] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    weakest: int = 0

    def add(self, device: str, seconds: float, source: str, *, measured: bool) -> None:
        self.devices[device] += seconds
        self.counts[device] = self.counts.get(device, 0) + 1
        self.weakest = max(self.weakest, SOURCES.index(source))
        if not measured:
            self.guessed[device] = self.guessed.get(device, 0.0) + seconds


def _layer_rows(predictions: Mapping[str, Prediction]) -> tuple[LayerRow, ...]:
    """By layer and phase, in the order the layers first run; the phases of one layer stand together."""
    sums: dict[tuple[str, str], _Sum] = {}
    order: dict[str, int] = {}
    for device, prediction in predictions.items():
        priced = prediction.priced
        for call, seconds, source in zip(priced.trace.calls, priced.seconds, priced.sources, strict=True):
            order.setdefault(call.layer, len(order))
            measured = backed(source, prediction.provenance)
            _at(sums, (call.layer, call.phase), predictions).add(device, seconds, source, measured=measured)
    keys = sorted(sums, key=lambda key: (order[key[0]], PHASES.index(key[1])))
    return tuple(LayerRow(*key, sums[key].devices, sums[key].guessed) for key in keys)


def _op_rows(predictions: Mapping[str, Prediction]) -> tuple[OpRow, ...]:
    """By op and family, the most expensive first."""
    sums: dict[tuple[str, str], _Sum] = {}
    for device, prediction in predictions.items():
        priced = prediction.priced
        rows = zip(priced.trace.calls, priced.families, priced.seconds, priced.sources, strict=True)
        for call, family, seconds, source in rows:
            measured = backed(source, prediction.provenance)
            _at(sums, (call.op, family), predictions).add(device, seconds, source, measured=measured)
    found = sorted(sums.items(), key=lambda item: -max(item[1].devices.values()))
    return tuple(
        OpRow(op, family, max(row.counts.values()), row.devices, SOURCES[row.weakest], row.guessed)
        for (op, family), row in found
    )


def _at(sums: dict[tuple[str, str], _Sum], key: tuple[str, str], predictions: Mapping[str, Prediction]) -> _Sum:
    """The sum under ``key``, which has an entry for every device."""
    if key not in sums:
        sums[key] = _Sum(dict.fromkeys(predictions, 0.0))
    return sums[key]


def _trace_notes(predictions: Mapping[str, Prediction]) -> Iterator[str]:
    for prediction in predictions.values():
        yield from prediction.priced.trace.notes


def _coverage_notes(predictions: Mapping[str, Prediction]) -> Iterator[str]:
    for device, prediction in predictions.items():
        names = uncalibrated_ops({device: prediction})
        if not names or prediction.provenance == "data sheet":  # of which all that is said is said elsewhere
            continue
        backing = "calibration" if prediction.provenance == "calibrated" else "published measurements"
        shown = ", ".join(list(names)[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
        yield f"on {device}, {1.0 - prediction.coverage:.0%} of the time is not backed by {backing}: {shown}"


def find_bottlenecks(predictions: Mapping[str, Prediction]) -> tuple[Bottleneck, ...]:
    """The bottlenecks of every device, in the order of the phases."""
    return tuple(found for device, p in predictions.items() for found in _bottlenecks_on(device, p.priced))


def _bottlenecks_on(device: str, priced: PricedTrace) -> Iterator[Bottleneck]:
    phases: dict[str, dict[tuple[str, str], float]] = {}
    for call, seconds in zip(priced.trace.calls, priced.seconds, strict=True):
        ops = phases.setdefault(call.phase, {})
        ops[call.layer, call.op] = ops.get((call.layer, call.op), 0.0) + seconds
    compute = sum(priced.seconds)
    for phase, ops in phases.items():
        whole = sum(ops.values())
        timed = {key: seconds for key, seconds in ops.items() if seconds > 0.0}
        if len(timed) < LEAST_OPS or whole < PHASE_SHARE * compute:
            continue
        (layer, op), seconds = max(timed.items(), key=lambda item: item[1])
        if seconds >= SHARE * whole:
            yield Bottleneck(device, phase, layer, op, seconds, whole)


def schedule(predictions: Mapping[str, Prediction], data: str) -> dict[str, tuple[SpanRow, ...]]:
    """The spans of one step by device. A device whose prices carry no fit is left out."""
    found = {n: _spans(p.priced, p.priced.fit, data) for n, p in predictions.items() if p.priced.fit is not None}
    return {name: rows for name, rows in found.items() if rows}


def _spans(priced: PricedTrace, fit: DeviceFit, data: str) -> tuple[SpanRow, ...]:
    spans: list[Span] = []
    if priced.device == "cpu":
        timeline.on_cpu(priced, fit, spans=spans)
    else:
        timeline.on_accelerator(priced, fit, data=data, spans=spans)
    depth = _DEEPEST
    rows = _merged_spans(spans, priced, depth)
    while len(rows) > MOST_SPANS and depth:
        depth -= 1
        rows = _merged_spans(spans, priced, depth)
    return rows if len(rows) <= MOST_SPANS else ()  # too many switches between phases to show


def _merged_spans(spans: Sequence[Span], priced: PricedTrace, depth: int) -> tuple[SpanRow, ...]:
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


def _job_layers(
    labels: Sequence[str], counts: Sequence[float], each: Sequence[Explanation], names: Sequence[str]
) -> Iterator[LayerRow]:
    for label, count, one in zip(labels, counts, each, strict=True):
        for row in one.layers:
            name = f"{label}.{row.name}" if row.name else label
            devices = {device: count * row.devices.get(device, 0.0) for device in names}
            yield LayerRow(name, row.phase, devices, {d: count * s for d, s in row.guessed.items() if d in devices})


def _job_ops(counts: Sequence[float], each: Sequence[Explanation], names: Sequence[str]) -> tuple[OpRow, ...]:
    """Ops of all parts by name and family, the most expensive first."""
    rows: dict[tuple[str, str], OpRow] = {}
    for count, one in zip(counts, each, strict=True):
        for row in one.ops:
            key = (row.op, row.family)
            before = rows.get(key, OpRow(*key, 0, dict.fromkeys(names, 0.0), SOURCES[0]))
            rows[key] = OpRow(
                *key,
                count=before.count + round(count * row.count),
                devices={d: before.devices[d] + count * row.devices.get(d, 0.0) for d in names},
                source=max(before.source, row.source, key=SOURCES.index),
                guessed={d: before.guessed.get(d, 0.0) + count * row.guessed.get(d, 0.0) for d in names},
            )
    return tuple(sorted(rows.values(), key=lambda row: -max(row.devices.values())))


def _job_bounds(counts: Sequence[float], each: Sequence[Explanation], name: str) -> dict[str, float]:
    """What limits the ops of all parts; empty where that is not known of one."""
    if not all(name in one.bounds for one in each):
        return {}
    sums: dict[str, float] = {}
    for count, one in zip(counts, each, strict=True):
        for limit, seconds in one.bounds[name].items():
            sums[limit] = sums.get(limit, 0.0) + count * seconds
    return sums


def _job_notes(labels: Sequence[str], each: Sequence[Explanation]) -> Iterator[str]:
    """The notes that all parts have, as they are; others with the part that they are of."""
    common = set.intersection(*(set(one.notes) for one in each))
    for label, one in zip(labels, each, strict=True):
        for note in one.notes:
            yield note if note in common else f"{label}: {note}"


def _job_bottlenecks(
    labels: Sequence[str], counts: Sequence[float], each: Sequence[Explanation], device: str
) -> Iterator[Bottleneck]:
    """Those of the part that takes longest on the device."""
    seconds = [count * one.devices[device].step_seconds for count, one in zip(counts, each, strict=True)]
    longest = max(range(len(seconds)), key=seconds.__getitem__)
    for row in each[longest].bottlenecks:
        yield replace(row, layer=f"{labels[longest]}.{row.layer}" if row.layer else labels[longest])


def _apart_advice(table: Table, apart: Apart, decision: Decision) -> Advice:
    """That parts are better off apart."""
    before, after = table.costs[decision.device].seconds, apart.seconds(table.repeats)
    copies = ""
    if apart.exchange_bytes:
        size, seconds = format_bytes(apart.exchange_bytes), format_seconds(apart.exchange_seconds)
        copies = f"; {size} of weights copied each time, {seconds}"
    return Advice(
        kind="apart", change=f"{apart.shares}{copies}", how="placer.Job(..., apart=True)", device=decision.device,
        before=before, after=after, gain=1.0 - after / before if before else 0.0,
    )  # fmt: skip
