"""The cells of one network: which there are, their predictions, their measurements.

A cell that raises keeps the reason; it never hides the others.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import nn

from placer.calibration.measuring.interleaved import Measurement, measure_interleaved
from placer.calibration.measuring.speed_probe import SpeedProbe
from placer.calibration.measuring.step import Step, make_optimizer
from placer.calibration.measuring.timing import Clock
from placer.calibration.suite import Entry
from placer.calibration.validation.isolated import isolated_seconds
from placer.calibration.validation.record import Cell
from placer.errors import PlacerError
from placer.placement import synchronize
from placer.pricing import describe_step, predict, roofline_seconds
from placer.profile import DeviceFit, Profile
from placer.tracing import Trace, trace
from placer.workload import Data, Workload, make_workload

#: A visit counts if its share of steps at the machine's usual pace is at least this much of the largest of any visit.
LEAST_SHARE = 0.5


@dataclass(frozen=True)
class Effort:
    """How to measure: rounds, seconds per cell, where batches live if a network does not say, clock and speed_probe."""

    rounds: int = 5
    seconds: float = 1.5
    data: Data = "host"
    clock: Clock = time.perf_counter
    speed_probe: SpeedProbe | None = None


def cells_of(entry: Entry, places: Sequence[tuple[str, int]]) -> list[Cell]:
    """The empty cells of a network at these (device, CPU threads)."""
    return [
        Cell(
            entry.name, entry.family, batch, mode, device, threads,
            optimizer=entry.optimizer if mode == "train" else "", traceable=entry.traceable,
        )
        for device, threads in places
        for mode in entry.modes
        for batch in entry.batches
    ]  # fmt: skip


def predicted_cells(entry: Entry, cells: Sequence[Cell], profile: Profile, data: Data) -> list[Cell]:
    """The cells with a prediction each, or the reason why there is none. One trace per batch and mode."""
    traces: dict[tuple[int, str], tuple[Trace | str, float]] = {}
    data = entry.data or data
    try:
        model = _build(entry)
    except Exception as error:  # noqa: BLE001  third-party constructors raise anything; the cell shows it
        return [unpredicted(cell, one_line(error)) for cell in cells]
    result = []
    for cell in cells:
        case = cell.batch, cell.mode
        if case not in traces:
            traces[case] = _traced(_workload(entry, model, cell, data))
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
    except PlacerError as error:
        return one_line(error), 0.0
    except Exception as error:  # noqa: BLE001  a defect of the tracer is a finding: it must not hide others
        return f"defect: {one_line(error)}", 0.0


def _priced(cell: Cell, traced: Trace, trace_seconds: float, profile: Profile, data: Data) -> Cell:
    started = time.perf_counter()
    try:
        prediction = predict(traced, profile, devices=(cell.device,), threads=cell.threads, data=data)[cell.device]
        seconds = time.perf_counter() - started
        flops, baselines = _baselines(traced, profile.fit(cell.device, cell.threads))
    except PlacerError as error:
        return unpredicted(cell, one_line(error))
    except Exception as error:  # noqa: BLE001  as for the tracer: a defect in pricing is shown, cell by cell
        return unpredicted(cell, f"defect: {one_line(error)}")
    return replace(
        cell,
        predicted=prediction.step_seconds,
        low=prediction.low,
        high=prediction.high,
        coverage=prediction.coverage,
        flops=flops,
        one_time_seconds=prediction.one_time_seconds,
        decision_seconds=trace_seconds + seconds,
        prediction_error=None,
        baselines={**cell.baselines, **baselines},
    )


def _baselines(traced: Trace, fit: DeviceFit) -> tuple[float, dict[str, float]]:
    """The step's FLOPs, and what simpler models say in seconds: FLOPs over the peak rate, and a roofline per op."""
    work = describe_step(traced)
    flops = sum(item.flops for item in work)
    return flops, {
        "flops": flops / fit.rates["flops/float32"],
        "roofline": sum(roofline_seconds(item, fit) for item in work),
    }


def measured_cells(entry: Entry, cells: Sequence[Cell], device: str, effort: Effort) -> list[Cell]:
    """Measurements of the cells of one network on one device, in turns; the caller has set the number of threads.

    What an earlier visit measured is kept and added to. A cell whose step raises keeps the error, and so do all when
    the network cannot be built.
    """
    try:
        return _measured(entry, cells, device, effort)
    except Exception as error:  # noqa: BLE001  one network that cannot be built must not end a run over all of them
        return [_with_measurement(cell, error) for cell in cells]


def _measured(entry: Entry, cells: Sequence[Cell], device: str, effort: Effort) -> list[Cell]:
    model = _build(entry).to(device)
    optimizer = make_optimizer(model, entry.optimizer) if any(cell.mode == "train" for cell in cells) else None
    data = entry.data or effort.data
    steps = [Step(_workload(entry, model, cell, data), device, optimizer) for cell in cells]
    results = measure_interleaved(
        steps,
        synchronize=None if device == "cpu" else partial(synchronize, device),
        clock=effort.clock,
        rounds=effort.rounds,
        seconds=effort.seconds,
        speed_probe=effort.speed_probe,
    )
    done = [_with_measurement(cell, result) for cell, result in zip(cells, results, strict=True)]
    if device != "cpu":
        return done
    return [_with_isolated(cell, step, effort.speed_probe) for cell, step in zip(done, steps, strict=True)]


def _with_isolated(cell: Cell, step: Step, speed_probe: SpeedProbe | None) -> Cell:
    """With the baseline that is measured: the sum of the ops' times, each alone."""
    if cell.measured is None or "isolated_sum" in cell.baselines:
        return cell
    step.prepare()
    if speed_probe is not None:
        speed_probe.settle()
    try:
        seconds = isolated_seconds(step)
    except Exception:  # noqa: BLE001  an op that refuses to be watched costs the baseline, not the cell
        return cell
    return replace(cell, baselines={**cell.baselines, "isolated_sum": seconds})


def _with_measurement(cell: Cell, result: Measurement | Exception) -> Cell:
    """With one more visit; a step that fails on a later one was measured all the same."""
    if isinstance(result, Exception):
        return cell if cell.visits else replace(cell, error=one_line(result))
    visits, usual = (*cell.visits, result.median), (*cell.usual, result.usual)
    cell = replace(cell, visits=visits, usual=usual, anyhow=(*cell.anyhow, result.anyhow), error=None)
    # Few steps at the machine's usual pace, among many at another, are moments in between.
    counts = [share >= LEAST_SHARE * max(usual) for share in usual]
    if not counts[-1]:
        return cell
    counted = [median for median, good in zip(visits, counts, strict=True) if good]
    first = len(counted) == 1
    apart = counted[-1] / counted[0]
    return replace(
        cell,
        measured=statistics.median(counted),
        p10=result.p10 if first or cell.p10 is None else min(cell.p10, result.p10),
        p90=result.p90 if first or cell.p90 is None else max(cell.p90, result.p90),
        count=result.count if first else cell.count + result.count,
        repeatability=result.repeatability if first else max(apart, 1.0 / apart),
    )


def _build(entry: Entry) -> nn.Module:
    """The model, its weights the same every time; the caller's random state is not disturbed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model: nn.Module = entry.build()
        return model


def _workload(entry: Entry, model: nn.Module, cell: Cell, data: Data) -> Workload:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(cell.batch)
        example = entry.example(cell.batch)
    model.train(cell.mode == "train")
    return make_workload(
        model, example=example, mode=cell.mode, loss=entry.loss, optimizer=entry.optimizer, data=data
    )  # fmt: skip


def unpredicted(cell: Cell, reason: str) -> Cell:
    """The cell without a prediction, and why."""
    return replace(
        cell, predicted=None, low=None, high=None, coverage=None, flops=None, one_time_seconds=None,
        decision_seconds=None,
        baselines={name: time for name, time in cell.baselines.items() if name == "isolated_sum"},
        prediction_error=reason,
    )  # fmt: skip


def one_line(error: Exception) -> str:
    """One printable line."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return "".join(character if character.isprintable() else "?" for character in text)[:500]
