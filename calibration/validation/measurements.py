"""Measurements of the cells of one network. A step that raises keeps the error; it never hides the others."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from placer.calibration.measuring.faults import release, synchronizer
from placer.calibration.measuring.speed_probe import SpeedProbe
from placer.calibration.measuring.step import Measurement, Step, make_optimizer, measure_interleaved
from placer.calibration.measuring.timing import Clock
from placer.calibration.suite import Entry
from placer.calibration.validation.cells import build_model, cell_workload, one_line
from placer.calibration.validation.isolated import isolated_seconds
from placer.calibration.validation.record import Cell

#: A visit counts if its share of steps at the machine's usual speed is at least this much of the largest of any visit.
LEAST_SHARE = 0.5


@dataclass(frozen=True)
class Effort:
    """How to measure: rounds, seconds per cell, clock and speed probe.

    ``isolated``: the baseline of ops timed alone is measured on the CPU too.
    """

    rounds: int = 5
    seconds: float = 1.5
    clock: Clock = time.perf_counter
    speed_probe: SpeedProbe | None = None
    isolated: bool = True


def measured_cells(entry: Entry, cells: Sequence[Cell], device: str, effort: Effort) -> list[Cell]:
    """Measurements of the cells of one network on one device, in turns; the caller has set the number of threads.

    What an earlier visit measured is kept and added to. A cell whose step raises keeps the error, and so do all when
    the network cannot be built.
    """
    try:
        return _measured(entry, cells, device, effort)
    except Exception as error:  # noqa: BLE001  one network that cannot be built must not end a run over all of them
        return [with_measurement(cell, error) for cell in cells]
    finally:
        if device != "cpu":
            release(device)  # else the next network finds the memory of this one taken


def _measured(entry: Entry, cells: Sequence[Cell], device: str, effort: Effort) -> list[Cell]:
    model = build_model(entry).to(device)
    optimizer = make_optimizer(model, entry.optimizer) if any(cell.mode == "train" for cell in cells) else None
    steps = [Step(cell_workload(entry, model, cell, entry.data or "host"), device, optimizer) for cell in cells]
    results = measure_interleaved(
        steps, synchronize=synchronizer(device), clock=effort.clock, rounds=effort.rounds, seconds=effort.seconds,
        speed_probe=effort.speed_probe,
    )  # fmt: skip
    done = [with_measurement(cell, result) for cell, result in zip(cells, results, strict=True)]
    if device != "cpu" or not effort.isolated:
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


def with_measurement(cell: Cell, result: Measurement | Exception) -> Cell:
    """With one more visit; a step that fails on a later one was measured all the same."""
    if isinstance(result, Exception):
        return cell if cell.visits else replace(cell, error=one_line(result))
    visits, usual = (*cell.visits, result.median), (*cell.usual, result.usual)
    cell = replace(cell, visits=visits, usual=usual, anyhow=(*cell.anyhow, result.anyhow), error=None)
    # Few steps at the machine's usual speed, among many at another, are moments in between.
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
