"""Predictions of the cells of one network. A cell without one keeps the reason; it never hides the others."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from placer.calibration.suite import Entry
from placer.calibration.validation.cells import build_model, cell_workload, one_line
from placer.calibration.validation.record import Cell
from placer.errors import PlacerError
from placer.pricing import describe_step, predict, roofline_seconds
from placer.profile import DeviceFit, Profile
from placer.tracing import Trace, trace
from placer.workload import Data, Workload


def predicted_cells(entry: Entry, cells: Sequence[Cell], profile: Profile) -> list[Cell]:
    """The cells with a prediction each, or the reason why there is none. One trace per batch and mode."""
    traces: dict[tuple[int, str], tuple[Trace | str, float]] = {}
    data = entry.data or "host"
    try:
        model = build_model(entry)
    except Exception as error:  # noqa: BLE001  third-party constructors raise anything; the cell shows it
        return [unpredicted(cell, one_line(error)) for cell in cells]
    result = []
    for cell in cells:
        case = cell.batch, cell.mode
        if case not in traces:
            traces[case] = _traced(cell_workload(entry, model, cell, data))
        traced, seconds = traces[case]
        if isinstance(traced, str):
            result.append(unpredicted(cell, traced))
        else:
            result.append(_priced(cell, traced, seconds, profile, data))
    return result


def _traced(workload: Workload) -> tuple[Trace | str, float]:
    started = time.perf_counter()
    try:
        return trace(workload), time.perf_counter() - started
    except Exception as error:  # noqa: BLE001  a defect of the tracer is a finding: it must not hide others
        return _reason(error), 0.0


def _reason(error: Exception) -> str:
    return one_line(error) if isinstance(error, PlacerError) else f"defect: {one_line(error)}"


def _priced(cell: Cell, traced: Trace, trace_seconds: float, profile: Profile, data: Data) -> Cell:
    started = time.perf_counter()
    try:
        prediction = predict(traced, profile, devices=(cell.device,), threads=cell.threads, data=data)[cell.device]
        seconds = time.perf_counter() - started
        flops, baselines = _baselines(traced, profile.fit(cell.device, cell.threads))
    except Exception as error:  # noqa: BLE001  as for the tracer: a defect in pricing is shown, cell by cell
        return unpredicted(cell, _reason(error))
    return replace(
        cell, predicted=prediction.step_seconds, low=prediction.low, high=prediction.high, coverage=prediction.coverage,
        flops=flops, one_time_seconds=prediction.one_time_seconds, decision_seconds=trace_seconds + seconds,
        prediction_error=None, baselines={**cell.baselines, **baselines},
    )  # fmt: skip


def _baselines(traced: Trace, fit: DeviceFit) -> tuple[float, dict[str, float]]:
    """The step's FLOPs, and what simpler models say in seconds: FLOPs over the peak rate, and a roofline per op."""
    work = describe_step(traced)
    flops = sum(item.flops for item in work)
    return flops, {
        "flops": flops / fit.rates["flops/float32"],
        "roofline": sum(roofline_seconds(item, fit) for item in work),
    }


def unpredicted(cell: Cell, reason: str) -> Cell:
    """The cell without a prediction, and why."""
    return replace(
        cell, predicted=None, low=None, high=None, coverage=None, flops=None, one_time_seconds=None,
        decision_seconds=None,
        baselines={name: time for name, time in cell.baselines.items() if name == "isolated_sum"},
        prediction_error=reason,
    )  # fmt: skip
