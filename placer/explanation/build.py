"""The rows of an explanation, made of a table: what each layer and op costs on each device, and when it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from placer.decision import PricedPart, Table
from placer.explanation.data import Bottleneck, LayerRow, OpRow, PartRow, SpanRow
from placer.pricing import SOURCES, Prediction, PricedTrace, Span, backed, compute_parts, step_bounds, timeline
from placer.profile import Device

#: Phases in the order of a step.
PHASES = ("forward", "loss", "backward", "optimizer")
#: An op of one layer is a bottleneck with at least this share of its phase, which has at least the second share of the
#: step's compute and the third number of different ops: of one or two, one always takes most of the time.
SHARE, PHASE_SHARE, LEAST_OPS = 0.5, 0.1, 3
#: Most spans of a device in its timeline. Consecutive ops of one layer are merged; the layer is told as deep as the
#: number allows.
MOST_SPANS = 160
_DEEPEST = 6


def longest_part(table: Table, device: str) -> PricedPart:
    """The part that takes most of the time on a device."""
    return max(table.parts, key=lambda part: part.count * part.predictions[device].step_seconds)


def part_rows(table: Table) -> tuple[PartRow, ...]:
    """What one step of each part of a job takes."""
    return tuple(PartRow(part.name, part.count, table.alone(part).costs, dict(part.facts)) for part in table.parts)


def priced_devices(table: Table) -> list[str]:
    """The devices whose prices come from a fit: that tells what limits an op."""
    return [device for device in table.costs if all(_fit(part, device) is not None for part in table.parts)]


def _label(part: PricedPart) -> str:
    """What a part is called among layers, whose names have dots; "" of a step, which is the only part."""
    return part.name.replace(".", " ")


def _inside(part: PricedPart, layer: str) -> str:
    return ".".join(filter(None, (_label(part), layer)))


def _fit(part: PricedPart, device: str) -> Device | None:
    return part.predictions[device].priced.fit


class _Call(NamedTuple):
    """One op call on one device: seconds of all its runs, and whether they are a guess."""

    device: str
    layer: str
    phase: str
    op: str
    family: str
    runs: float
    seconds: float
    source: str
    guess: bool


def _calls(table: Table) -> Iterator[_Call]:
    """All calls of all parts on all devices."""
    for part in table.parts:
        for device in table.costs:
            prediction = part.predictions[device]
            priced = prediction.priced
            rows = zip(priced.trace.calls, priced.families, priced.seconds, priced.sources, strict=True)
            for call, family, seconds, source in rows:
                yield _Call(
                    device,
                    _inside(part, call.layer),
                    call.phase,
                    call.op,
                    family,
                    part.count,
                    part.count * seconds,
                    source,
                    not backed(source, prediction.provenance),
                )


@dataclass
class _Sum:
    """Seconds by device, the part of them whose price nobody measured, and how often the op runs there."""

    devices: dict[str, float]
    guessed: dict[str, float] = field(default_factory=dict)
    counts: dict[str, float] = field(default_factory=dict)
    weakest: int = 0

    def add(self, call: _Call) -> None:
        self.devices[call.device] += call.seconds
        self.counts[call.device] = self.counts.get(call.device, 0) + call.runs
        if call.seconds:  # what takes no time rests on nothing
            self.weakest = max(self.weakest, SOURCES.index(call.source))
        if call.guess:
            self.guessed[call.device] = self.guessed.get(call.device, 0.0) + call.seconds


def _sums(table: Table, key: Callable[[_Call], tuple[str, str]]) -> dict[tuple[str, str], _Sum]:
    """The calls added up by a key, in the order they first run."""
    sums: dict[tuple[str, str], _Sum] = {}
    for call in _calls(table):
        if key(call) not in sums:
            sums[key(call)] = _Sum(dict.fromkeys(table.costs, 0.0))
        sums[key(call)].add(call)
    return sums


def layer_rows(table: Table) -> tuple[LayerRow, ...]:
    """By layer and phase, in the order the layers first run; the phases of one layer stand together."""
    sums = _sums(table, lambda call: (call.layer, call.phase))
    order = {layer: number for number, layer in enumerate(dict.fromkeys(layer for layer, _ in sums))}
    keys = sorted(sums, key=lambda key: (order[key[0]], PHASES.index(key[1])))
    return tuple(LayerRow(*key, sums[key].devices, sums[key].guessed) for key in keys)


def op_rows(table: Table) -> tuple[OpRow, ...]:
    """By op and family, the most expensive first."""
    rows = [
        OpRow(*key, round(max(total.counts.values())), total.devices, SOURCES[total.weakest], total.guessed)
        for key, total in _sums(table, lambda call: (call.op, call.family)).items()
    ]
    return tuple(sorted(rows, key=lambda row: -max(row.devices.values())))


def bounds(table: Table, device: str) -> dict[str, float]:
    """What limits the ops of all parts on a device: seconds by limit."""
    sums: dict[str, float] = {}
    for part in table.parts:
        priced = part.predictions[device].priced
        assert priced.fit is not None
        for limit, seconds in compute_parts(priced, priced.fit).items():
            sums[limit] = sums.get(limit, 0.0) + part.count * seconds
    return sums


def limits(table: Table, device: str) -> dict[str, float]:
    """What bounds the steps of all parts on a device: seconds by bound."""
    sums: dict[str, float] = {}
    for part in table.parts:
        prediction = part.predictions[device]
        assert prediction.priced.fit is not None
        by_bound = step_bounds(prediction.priced, prediction.components, prediction.priced.fit)
        for bound, seconds in by_bound.items():
            sums[bound] = sums.get(bound, 0.0) + part.count * seconds
    return sums


def notes(table: Table) -> tuple[str, ...]:
    """The notes that all parts have, as they are; others with the part that they are of."""
    by_part = [(*table.notes, *part.notes, *_notes_of(part.predictions)) for part in table.parts]
    common = set.intersection(*map(set, by_part))
    labelled = [
        note if note in common else f"{_label(part)}: {note}"
        for part, notes in zip(table.parts, by_part, strict=True)
        for note in notes
    ]
    return tuple(dict.fromkeys(labelled))


def _notes_of(predictions: Mapping[str, Prediction]) -> Iterator[str]:
    """What is said of the traces, and on each device of the ops that are priced without measurements in range."""
    for prediction in predictions.values():
        yield from prediction.priced.trace.notes
    for device, prediction in predictions.items():
        priced, seconds = prediction.priced, dict[str, float]()
        for call, price, source in zip(priced.trace.calls, priced.seconds, priced.sources, strict=True):
            if price and not backed(source, prediction.provenance):
                seconds[call.op] = seconds.get(call.op, 0.0) + price
        if not seconds or prediction.provenance == "data sheet":  # of which all that is said is said elsewhere
            continue
        backing = "calibration" if prediction.provenance == "calibrated" else "published measurements"
        names = sorted(seconds, key=lambda name: -seconds[name])
        shown = ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
        yield f"on {device}, {1.0 - prediction.coverage:.0%} of the time is not backed by {backing}: {shown}"


def bottlenecks(part: PricedPart) -> Iterator[Bottleneck]:
    """The bottlenecks on every device, in the order of the phases."""
    for device, prediction in part.predictions.items():
        priced = prediction.priced
        phases: dict[str, dict[tuple[str, str], float]] = {}
        for call, seconds in zip(priced.trace.calls, priced.seconds, strict=True):
            ops = phases.setdefault(call.phase, {})
            ops[call.layer, call.op] = ops.get((call.layer, call.op), 0.0) + seconds
        for phase, ops in phases.items():
            whole = sum(ops.values())
            timed = {key: seconds for key, seconds in ops.items() if seconds > 0.0}
            if len(timed) < LEAST_OPS or whole < PHASE_SHARE * sum(priced.seconds):
                continue
            (layer, op), seconds = max(timed.items(), key=lambda item: item[1])
            if seconds >= SHARE * whole:
                yield Bottleneck(device, phase, _inside(part, layer), op, seconds, whole)


def schedule(part: PricedPart) -> dict[str, tuple[SpanRow, ...]]:
    """The spans of one step by device. A device whose prices carry no fit is left out."""
    schedules: dict[str, tuple[SpanRow, ...]] = {}
    for name, prediction in part.predictions.items():
        priced, spans = prediction.priced, list[Span]()
        if priced.fit is None:
            continue
        if priced.device == "cpu":
            timeline.on_cpu(priced, priced.fit, spans=spans)
        else:
            data, outputs = str(part.facts.get("data", "host")), part.facts.get("outputs")
            timeline.on_accelerator(priced, priced.fit, data=data, outputs=outputs, spans=spans)
        for depth in range(_DEEPEST, -1, -1):
            rows = _merged_spans(spans, priced, depth)
            if 0 < len(rows) <= MOST_SPANS:  # else too many switches between phases to show
                schedules[name] = rows
                break
    return schedules


def _merged_spans(spans: Sequence[Span], priced: PricedTrace, depth: int) -> tuple[SpanRow, ...]:
    """One row per run of spans on a lane with the same phase and layer; layer names are cut after ``depth`` parts."""
    calls = priced.trace.calls
    rows: list[dict[str, Any]] = []
    last: dict[str, dict[str, Any]] = {}
    for span in spans:
        call = calls[span.call] if span.call >= 0 else None
        label = span.label if call is None else ".".join(call.layer.split(".")[:depth])
        phase = "" if call is None else call.phase
        row = last.get(span.lane)
        if row is not None and (row["label"], row["phase"]) == (label, phase):
            row["seconds"] = span.start + span.seconds - row["start"]
            continue
        row = {"lane": span.lane, "label": label, "phase": phase, "start": span.start, "seconds": span.seconds}
        last[span.lane] = row
        rows.append(row)
    return tuple(SpanRow(**row) for row in rows)
