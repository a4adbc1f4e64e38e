"""Predictions -> the rows of an Explanation: what each layer and each op costs on each device."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from placer.decision import Decision
from placer.explanation import bottlenecks
from placer.explanation.bounds import bounds
from placer.explanation.explanation import Explanation
from placer.explanation.parts import DeviceRow, LayerRow, OpRow
from placer.explanation.schedule import schedule
from placer.prediction import Prediction, PricedTrace

#: Phases in the order of a step.
PHASES = ("forward", "loss", "backward", "optimizer")
#: From the best to the weakest origin of a price.
_SOURCES = ("calibrated", "extrapolated", "floor")


def build(
    predictions: Mapping[str, Prediction],
    decision: Decision,
    workload: Mapping[str, Any],
    machine: Mapping[str, Any],
    notes: tuple[str, ...] = (),
    *,
    with_timeline: bool = True,
) -> Explanation:
    """Gather the rows of every device. Nothing is left out: layers and ops each add up to the compute component."""
    found = (*notes, *_trace_notes(predictions), *_coverage_notes(predictions))
    return Explanation(
        workload=dict(workload),
        decision=decision,
        devices={name: _device_row(prediction) for name, prediction in predictions.items()},
        layers=_layer_rows(predictions),
        ops=_op_rows(predictions),
        notes=tuple(dict.fromkeys(found)),
        machine=dict(machine),
        bottlenecks=bottlenecks.find(predictions),
        bounds=bounds(predictions),
        timeline=schedule(predictions, str(workload.get("data", "host"))) if with_timeline else {},
    )


def uncalibrated_ops(predictions: Mapping[str, Prediction]) -> dict[str, float]:
    """Seconds by name of the ops priced without calibrated samples in range, the largest first."""
    seconds: dict[str, float] = {}
    for prediction in predictions.values():
        priced = prediction.priced
        for call, price, source in zip(priced.trace.calls, priced.seconds, priced.sources, strict=True):
            if source != "calibrated":
                seconds[call.op] = seconds.get(call.op, 0.0) + price
    return dict(sorted(seconds.items(), key=lambda item: -item[1]))


def _device_row(prediction: Prediction) -> DeviceRow:
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
    )


def _layer_rows(predictions: Mapping[str, Prediction]) -> tuple[LayerRow, ...]:
    """In the order the layers first run; the phases of one layer stand together."""
    sums: dict[tuple[str, str], dict[str, float]] = {}
    guessed: dict[tuple[str, str], dict[str, float]] = {}
    order: dict[str, int] = {}
    for device, priced in _priced(predictions):
        for call, seconds, source in zip(priced.trace.calls, priced.seconds, priced.sources, strict=True):
            order.setdefault(call.layer, len(order))
            key = (call.layer, call.phase)
            row = sums.setdefault(key, {})
            row[device] = row.get(device, 0.0) + seconds
            if source != "calibrated":
                part = guessed.setdefault(key, {})
                part[device] = part.get(device, 0.0) + seconds
    keys = sorted(sums, key=lambda key: (order[key[0]], PHASES.index(key[1])))
    return tuple(LayerRow(*key, _complete(sums[key], predictions), guessed.get(key, {})) for key in keys)


def _op_rows(predictions: Mapping[str, Prediction]) -> tuple[OpRow, ...]:
    """By op and family, the most expensive first."""
    sums: dict[tuple[str, str], dict[str, float]] = {}
    guessed: dict[tuple[str, str], dict[str, float]] = {}
    counts: dict[tuple[str, str], dict[str, int]] = {}
    sources: dict[tuple[str, str], int] = {}
    for device, priced in _priced(predictions):
        rows = zip(priced.trace.calls, priced.families, priced.seconds, priced.sources, strict=True)
        for call, family, seconds, source in rows:
            key = (call.op, family)
            row = sums.setdefault(key, {})
            row[device] = row.get(device, 0.0) + seconds
            count = counts.setdefault(key, {})
            count[device] = count.get(device, 0) + 1
            if source != "calibrated":
                part = guessed.setdefault(key, {})
                part[device] = part.get(device, 0.0) + seconds
            sources[key] = max(sources.get(key, 0), _SOURCES.index(source))
    keys = sorted(sums, key=lambda key: -max(sums[key].values()))
    return tuple(
        OpRow(op, family, max(counts[op, family].values()), _complete(sums[op, family], predictions),
              _SOURCES[sources[op, family]], guessed.get((op, family), {}))
        for op, family in keys
    )  # fmt: skip


def _priced(predictions: Mapping[str, Prediction]) -> Iterator[tuple[str, PricedTrace]]:
    for device, prediction in predictions.items():
        yield device, prediction.priced


def _complete(seconds: Mapping[str, float], predictions: Mapping[str, Prediction]) -> dict[str, float]:
    """Every device has an entry, so that a reader need not look for a missing one."""
    return {device: seconds.get(device, 0.0) for device in predictions}


def _trace_notes(predictions: Mapping[str, Prediction]) -> Iterator[str]:
    for _, priced in _priced(predictions):
        yield from priced.trace.notes


def _coverage_notes(predictions: Mapping[str, Prediction]) -> Iterator[str]:
    for device, prediction in predictions.items():
        names = uncalibrated_ops({device: prediction})
        if not names:
            continue
        shown = ", ".join(list(names)[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
        yield f"on {device}, {1.0 - prediction.coverage:.0%} of the time is not backed by calibration: {shown}"
