"""Predictions -> Explanation: what each layer and each op costs on each device."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from placer.decision import TIME, Decision, Objective, Total
from placer.explanation import bottlenecks
from placer.explanation.explanation import Explanation
from placer.explanation.rows import DeviceRow, LayerRow, OpRow
from placer.explanation.schedule import schedule
from placer.pricing import SOURCES, Prediction, backed, compute_parts

#: Phases in the order of a step.
PHASES = ("forward", "loss", "backward", "optimizer")


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
    """The Explanation of a decision. Layers and ops each add up to a device's compute component."""
    found = (*notes, *_trace_notes(predictions), *_coverage_notes(predictions))
    return Explanation(
        workload=dict(workload),
        decision=decision,
        devices={name: device_row(prediction, objective) for name, prediction in predictions.items()},
        layers=_layer_rows(predictions),
        ops=_op_rows(predictions),
        notes=tuple(dict.fromkeys(found)),
        machine=dict(machine),
        bottlenecks=bottlenecks.find(predictions),
        bounds={n: compute_parts(p.priced, p.priced.fit) for n, p in predictions.items() if p.priced.fit is not None},
        timeline=schedule(predictions, str(workload.get("data", "host"))) if with_timeline else {},
    )


def uncalibrated_ops(predictions: Mapping[str, Prediction]) -> dict[str, float]:
    """Seconds by name of the ops priced without measurements in range, the largest first."""
    seconds: dict[str, float] = {}
    for prediction in predictions.values():
        priced = prediction.priced
        for call, price, source in zip(priced.trace.calls, priced.seconds, priced.sources, strict=True):
            if not backed(source, prediction.provenance):
                seconds[call.op] = seconds.get(call.op, 0.0) + price
    return dict(sorted(seconds.items(), key=lambda item: -item[1]))


def device_row(prediction: Prediction | Total, objective: Objective = TIME) -> DeviceRow:
    """What an explanation keeps of a prediction, or of the total of several."""
    return DeviceRow(
        step_seconds=prediction.step_seconds,
        low=prediction.low,
        high=prediction.high,
        one_time_seconds=prediction.one_time_seconds,
        total_seconds=prediction.total_seconds,
        components=dict(prediction.components),
        peak_memory_bytes=prediction.peak_memory_bytes,
        fits=prediction.fits,
        coverage=prediction.coverage,
        provenance=prediction.provenance,
        available_memory_bytes=prediction.available_memory_bytes,
        one_time=dict(prediction.one_time),
        bounded_by=prediction.bounded_by,
        watts=objective.watts_of(prediction),
        dollars_per_hour=objective.dollars_per_hour(prediction),
    )


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
