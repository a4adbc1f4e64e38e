"""A priced job -> its Explanation: one step of it is the whole job, and its parts are the outermost layers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from placer.answer import explanation_of
from placer.decision import Advice, Decision
from placer.explanation import (
    ApartRow,
    Bottleneck,
    Explanation,
    LayerRow,
    OpRow,
    PartRow,
    device_row,
)
from placer.jobs.apart import Apart
from placer.jobs.pricing import PricedJob
from placer.pricing import SOURCES
from placer.units import format_bytes, format_seconds


def explained(
    found: PricedJob, decision: Decision | None = None, apart: Apart | None = None, advice: tuple[Advice, ...] = ()
) -> Explanation:
    """Why the job runs where it does. ``decision`` None: on one device, though ``apart`` may be how it would be faster.

    Layers and ops add up to a device's compute component, as those of a step do.
    """
    names = found.devices
    each = [explanation_of(plan, with_timeline=False) for plan in found.plans]
    counts = [part.count for part in found.job.parts]
    labels = [part.name.replace(".", " ") for part in found.job.parts]
    chosen = decision or found.decision
    return Explanation(
        workload=_workload(found),
        decision=chosen,
        devices={name: device_row(row, found.plans[0].objective) for name, row in found.totals.items()},
        layers=tuple(_layers(labels, counts, each, names)),
        ops=_ops(counts, each, names),
        notes=tuple(dict.fromkeys(_notes(labels, each))),
        machine=each[0].machine,
        bottlenecks=tuple(_bottlenecks(labels, counts, each, chosen.device)),
        bounds={name: bounds for name in names if (bounds := _bounds(counts, each, name))},
        advice=(*(_apart_advice(found, apart, chosen) if decision is None else ()), *advice),
        parts=tuple(
            PartRow(part.name, part.count, {name: one.devices[name] for name in names}, one.workload)
            for part, one in zip(found.job.parts, each, strict=True)
        ),
        apart=None if apart is None else ApartRow(**{**vars(apart), "chosen": decision is not None}),
    )


def _workload(found: PricedJob) -> dict[str, Any]:
    facts = [plan.workload for plan in found.plans]
    return {
        "target": "job",
        "mode": "train" if any(one.get("mode") == "train" for one in facts) else "infer",
        "inputs": [],
        "optimizer": None,
        "steps": found.job.repeats,
        "parts": {part.name: part.count for part in found.job.parts},
        "op_calls": round(sum(part.count * plan.workload.get("op_calls", 0) for part, plan in found.rows)),
    }


def _layers(
    labels: Sequence[str], counts: Sequence[float], each: Sequence[Explanation], names: Sequence[str]
) -> Iterator[LayerRow]:
    for label, count, one in zip(labels, counts, each, strict=True):
        for row in one.layers:
            name = f"{label}.{row.name}" if row.name else label
            devices = {device: count * row.devices.get(device, 0.0) for device in names}
            yield LayerRow(name, row.phase, devices, {d: count * s for d, s in row.guessed.items() if d in devices})


def _ops(counts: Sequence[float], each: Sequence[Explanation], names: Sequence[str]) -> tuple[OpRow, ...]:
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


def _bounds(counts: Sequence[float], each: Sequence[Explanation], name: str) -> dict[str, float]:
    """What limits the ops of all parts; empty where that is not known of one."""
    if not all(name in one.bounds for one in each):
        return {}
    sums: dict[str, float] = {}
    for count, one in zip(counts, each, strict=True):
        for limit, seconds in one.bounds[name].items():
            sums[limit] = sums.get(limit, 0.0) + count * seconds
    return sums


def _notes(labels: Sequence[str], each: Sequence[Explanation]) -> Iterator[str]:
    """The notes that all parts have, as they are; others with the part that they are of."""
    common = set.intersection(*(set(one.notes) for one in each))
    for label, one in zip(labels, each, strict=True):
        for note in one.notes:
            yield note if note in common else f"{label}: {note}"


def _bottlenecks(
    labels: Sequence[str], counts: Sequence[float], each: Sequence[Explanation], device: str
) -> Iterator[Bottleneck]:
    """Those of the part that takes longest on the device."""
    seconds = [count * one.devices[device].step_seconds for count, one in zip(counts, each, strict=True)]
    longest = max(range(len(seconds)), key=seconds.__getitem__)
    for row in each[longest].bottlenecks:
        yield replace(row, layer=f"{labels[longest]}.{row.layer}" if row.layer else labels[longest])


def _apart_advice(found: PricedJob, apart: Apart | None, decision: Decision) -> Iterable[Advice]:
    """That parts are better off apart."""
    if apart is None:
        return ()
    repeats, together = found.job.repeats, found.totals[found.decision.device]
    before = together.step_seconds if together.total_seconds is None else together.total_seconds
    after = apart.seconds(repeats)
    shares = ", ".join(f"{name} on {device}" for name, device in apart.devices.items())
    copies = ""
    if apart.exchange_bytes:
        size, seconds = format_bytes(apart.exchange_bytes), format_seconds(apart.exchange_seconds)
        copies = f"; {size} of weights copied each time, {seconds}"
    return (
        Advice(
            kind="apart", change=f"{shares}{copies}", how="placer.Job(..., apart=True)", device=decision.device,
            before=before, after=after, gain=1.0 - after / before if before else 0.0,
        ),
    )  # fmt: skip
