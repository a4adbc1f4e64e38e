"""The cells of one network: predicted from a profile, and measured. What fails keeps the reason, and hides no other."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from placer.calibration.measuring.faults import release, synchronizer
from placer.calibration.measuring.step import Measurement, Step, make_optimizer, measure_interleaved
from placer.calibration.measuring.timing import Clock
from placer.calibration.suite import Entry
from placer.calibration.validation.record import Cell, apart
from placer.decision import Candidate, Candidates, Question, Traced, answer, traced_step
from placer.errors import PlacerError
from placer.pricing import Prediction, Work, describe_step
from placer.pricing.physics import peak
from placer.profile import Device, Profile
from placer.tracing import trace
from placer.workload import Data, Workload, make_workload

#: The baselines that come with a prediction; others were measured.
PREDICTED_BASELINES = ("flops", "roofline")


@dataclass(frozen=True)
class Effort:
    """How to measure: rounds, seconds per cell and clock."""

    rounds: int = 5
    seconds: float = 1.5
    clock: Clock = time.perf_counter


def cells_of(entry: Entry, places: Sequence[tuple[str, int]]) -> list[Cell]:
    """The empty cells of a network at these (device, CPU threads)."""
    return [
        Cell(entry.name, entry.family, batch, mode, device, threads, entry.optimizer if mode == "train" else "")
        for device, threads in places
        for mode in entry.modes
        for batch in entry.batches
    ]


def build_model(entry: Entry) -> nn.Module:
    """The model of a network, its weights the same every time; the caller's random state is not disturbed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return entry.build()


def cell_workload(entry: Entry, model: nn.Module, cell: Cell, data: Data) -> Workload:
    """The workload of one cell, its batch the same every time; puts ``model`` into the cell's mode."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(cell.batch)
        example = entry.example(cell.batch)
    model.train(cell.mode == "train")
    return make_workload(
        model,
        batch=example,
        mode=cell.mode,
        loss=entry.loss,
        optimizer=entry.optimizer,
        data=data,
        autocast=entry.autocast,
    )


def one_line(error: Exception) -> str:
    """One printable line."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return "".join(character if character.isprintable() else "?" for character in text)[:500]


@dataclass(frozen=True)
class TracedNetwork:
    """A network's steps by (batch, mode), with the seconds that tracing took, or the reason why there is no trace.

    ``parameters`` counts the numbers in its parameters; None where it cannot be built. What prices it is not known yet.
    """

    parameters: int | None
    steps: Mapping[tuple[int, str], tuple[Traced, float]]
    reasons: Mapping[tuple[int, str], str]


def traced_network(entry: Entry, cells: Iterable[Cell]) -> TracedNetwork:
    """The trace of every batch and mode of these cells, one each."""
    cases = {(cell.batch, cell.mode): cell for cell in cells}
    try:
        model = build_model(entry)
    except Exception as error:  # noqa: BLE001  third-party constructors raise anything; the cell shows it
        return TracedNetwork(None, {}, dict.fromkeys(cases, one_line(error)))
    steps: dict[tuple[int, str], tuple[Traced, float]] = {}
    reasons: dict[tuple[int, str], str] = {}
    for case, cell in cases.items():
        try:
            workload, started = cell_workload(entry, model, cell, entry.data or "host"), time.perf_counter()
            steps[case] = traced_step(workload, trace(workload)), time.perf_counter() - started
        except Exception as error:  # noqa: BLE001  see ``_reason``
            reasons[case] = _reason(error)
    return TracedNetwork(sum(weights.numel() for weights in model.parameters()), steps, reasons)


def priced_cells(cells: Iterable[Cell], network: TracedNetwork, profile: Profile) -> list[Cell]:
    """The cells of a network with a prediction each, or the reason why there is none."""
    result = []
    for cell in cells:
        counted = replace(cell, parameters=network.parameters)
        case = cell.batch, cell.mode
        if case in network.reasons:
            result.append(unpredicted(counted, network.reasons[case]))
            continue
        try:
            result.append(_with_prediction(counted, *network.steps[case], profile))
        except Exception as error:  # noqa: BLE001  see ``_reason``
            result.append(unpredicted(counted, _reason(error)))
    return result


def _reason(error: Exception) -> str:
    """Why there is no prediction. A defect of tracing or pricing is a finding: it must not hide others."""
    return one_line(error) if isinstance(error, PlacerError) else f"defect: {one_line(error)}"


def priced_on(traced: Traced, profile: Profile, device: str, threads: int) -> Prediction:
    """A step on a device of a profile, wherever that is: it depends on nothing of this machine. Raises PlacerError."""
    candidate = Candidate(device, device, profile, threads)
    table = answer(Question(traced, Candidates((candidate,), profile)))
    return table.parts[0].predictions[device]


def _roofline(work: Work, fit: Device) -> float:
    """The roofline of one op: a start, then FLOPs at the peak of the dtype or bytes at the memory's rate."""
    start = work.shape.ops_inside * fit.rates["dispatch_seconds"]
    return start + max(work.flops / peak(work, fit.rates), work.bytes / fit.rates["bytes_per_second"])


def _with_prediction(cell: Cell, traced: Traced, trace_seconds: float, profile: Profile) -> Cell:
    """With the prediction, and what simpler models say: FLOPs over the peak rate, and a roofline per op."""
    started = time.perf_counter()
    prediction = priced_on(traced, profile, cell.device, cell.threads)
    seconds = trace_seconds + time.perf_counter() - started
    fit = profile.fit(cell.device, cell.threads)
    work = describe_step(traced.parts[0].trace)
    flops = sum(item.flops for item in work)
    roofline = sum(_roofline(item, fit) for item in work)
    return replace(
        cell,
        predicted=prediction.step_seconds,
        low=prediction.low,
        high=prediction.high,
        coverage=prediction.coverage,
        flops=flops,
        one_time_seconds=prediction.one_time_seconds,
        decision_seconds=seconds,
        prediction_error=None,
        baselines={**cell.baselines, "flops": flops / fit.rates["flops/float32"], "roofline": roofline},
    )


def unpredicted(cell: Cell, reason: str) -> Cell:
    """The cell without a prediction, and why."""
    baselines = {name: seconds for name, seconds in cell.baselines.items() if name not in PREDICTED_BASELINES}
    nothing: dict[str, Any] = dict.fromkeys(
        ("predicted", "low", "high", "coverage", "flops", "one_time_seconds", "decision_seconds")
    )
    return replace(cell, **nothing, baselines=baselines, prediction_error=reason)


def measured_cells(entry: Entry, cells: Sequence[Cell], device: str, effort: Effort) -> list[Cell]:
    """Measurements of the cells of one network on one device, in turns; the caller has set the number of threads.

    What an earlier visit measured is kept and added to. A cell whose step raises keeps the error, and so do all when
    the network cannot be built.
    """
    try:
        model = build_model(entry).to(device)
        optimizer = make_optimizer(model, entry.optimizer) if any(cell.mode == "train" for cell in cells) else None
        steps = [Step(cell_workload(entry, model, cell, entry.data or "host"), device, optimizer) for cell in cells]
        results = measure_interleaved(
            steps, synchronize=synchronizer(device), clock=effort.clock, rounds=effort.rounds, seconds=effort.seconds
        )
        return [with_measurement(cell, result) for cell, result in zip(cells, results, strict=True)]
    except Exception as error:  # noqa: BLE001  one network that cannot be built must not end a run over all of them
        return [with_measurement(cell, error) for cell in cells]
    finally:
        if device != "cpu":
            release(device)  # else the next network finds the memory of this one taken


def with_measurement(cell: Cell, result: Measurement | Exception) -> Cell:
    """With one more visit; a step that fails on a later one was measured all the same."""
    if isinstance(result, Exception):
        return cell if cell.visits else replace(cell, error=one_line(result))
    visits = (*cell.visits, result.median)
    return replace(
        cell,
        visits=visits,
        error=None,
        measured=statistics.median(visits),
        p10=result.p10 if cell.p10 is None else min(cell.p10, result.p10),
        p90=result.p90 if cell.p90 is None else max(cell.p90, result.p90),
        count=cell.count + result.count,
        repeatability=apart(visits) if cell.visits else result.repeatability,
    )
