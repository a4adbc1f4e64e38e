"""The rows of an explanation, made of a table: what each layer and op costs on each device, and when it runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

from placer.decision import PricedPart, Table
from placer.explanation.data import PHASES, Bottleneck, LayerRow, OpRow, PartRow, SpanRow
from placer.pricing import SOURCES, PricedTrace, Span, backed, compute_parts, step_bounds, timeline
from placer.profile import Device

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


@dataclass
class _Sum:
    """Seconds by device, the part of them whose price nobody measured, how often ops run there, the weakest source."""

    devices: dict[str, float]
    guessed: dict[str, float] = field(default_factory=dict)
    counts: dict[str, float] = field(default_factory=dict)
    weakest: int = 0

    def add(self, device: str, runs: float, seconds: float, source: str, *, guess: bool) -> None:
        """A call that takes so many ``seconds`` each of its ``runs``."""
        self.devices[device] += runs * seconds
        self.counts[device] = self.counts.get(device, 0) + runs
        if seconds:  # what takes no time rests on nothing
            self.weakest = max(self.weakest, SOURCES.index(source))
        if guess:
            self.guessed[device] = self.guessed.get(device, 0.0) + runs * seconds


def rows(table: Table) -> tuple[tuple[LayerRow, ...], tuple[OpRow, ...]]:
    """The layers in the order they first run, their phases together; and the ops, the most expensive first."""
    layers: dict[str, dict[str, _Sum]] = {}
    ops: dict[tuple[str, str], _Sum] = {}
    for part in table.parts:
        for device, prediction in part.predictions.items():
            priced = prediction.priced
            calls = zip(priced.trace.calls, priced.families, priced.seconds, priced.sources, strict=True)
            for call, family, seconds, source in calls:
                phases = layers.setdefault(_inside(part, call.layer), {})
                of_phase = phases.setdefault(call.phase, _Sum(dict.fromkeys(table.costs, 0.0)))
                of_op = ops.setdefault((call.op, family), _Sum(dict.fromkeys(table.costs, 0.0)))
                for total in (of_phase, of_op):
                    total.add(device, part.count, seconds, source, guess=not backed(source, prediction.provenance))
    layer_rows: list[LayerRow] = []
    for layer, phases in layers.items():
        in_order = [(phase, phases[phase]) for phase in PHASES if phase in phases]
        layer_rows += [LayerRow(layer, phase, total.devices, total.guessed) for phase, total in in_order]
    op_rows = [
        OpRow(*key, round(max(total.counts.values())), total.devices, SOURCES[total.weakest], total.guessed)
        for key, total in ops.items()
    ]
    return tuple(layer_rows), tuple(sorted(op_rows, key=lambda row: -max(row.devices.values())))


def bounds(table: Table, device: str) -> dict[str, float]:
    """What limits the ops of all parts on a device: seconds by limit."""
    sums: defaultdict[str, float] = defaultdict(float)
    for part in table.parts:
        priced = part.predictions[device].priced
        assert priced.fit is not None
        for limit, seconds in compute_parts(priced, priced.fit).items():
            sums[limit] += part.count * seconds
    return dict(sums)


def limits(table: Table, device: str) -> dict[str, float]:
    """What bounds the steps of all parts on a device: seconds by bound."""
    sums: defaultdict[str, float] = defaultdict(float)
    for part in table.parts:
        prediction = part.predictions[device]
        assert prediction.priced.fit is not None
        by_bound = step_bounds(prediction.priced, prediction.components, prediction.priced.fit)
        for bound, seconds in by_bound.items():
            sums[bound] += part.count * seconds
    return dict(sums)


def notes(table: Table) -> tuple[str, ...]:
    """The notes that all parts have, as they are; others with the part that they are of."""
    by_part = []
    for part in table.parts:
        of_part = [*table.notes, *part.notes]
        for prediction in part.predictions.values():
            of_part += prediction.priced.trace.notes
        by_part.append(of_part)
    common = set.intersection(*map(set, by_part))
    labelled: list[str] = []
    for part, of_part in zip(table.parts, by_part, strict=True):
        labelled += [note if note in common else f"{_label(part)}: {note}" for note in of_part]
    return tuple(dict.fromkeys(labelled))


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
            (layer, op), seconds = max(timed.items(), key=itemgetter(1))
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
