"""The reference systems of a validation report: what was predicted, measured and chosen, beside what was reported."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from placer.calibration.suite.reference import ENTRIES
from placer.calibration.suite.reference.account import Case, Reference
from placer.calibration.validation.record import Cell, thread_count
from placer.decision import TIE
from placer.units import format_seconds

Row = tuple[str, ...]
COLUMNS: Row = (
    "system", "variant", "batch", "rows", "CPU predicted", "CPU measured", "GPU predicted", "GPU measured", "choice",
    "right", "GPU repaid after", "reported",
)  # fmt: skip
NOT_MEASURED = "not measured"
NOT_PREDICTED = "not predicted"


def reference_rows(cells: Sequence[Cell]) -> dict[str, tuple[Row, ...]]:
    """Rows under ``COLUMNS`` by the title of their table: one per number of CPU threads and accelerator of the report.

    Times are seconds of a step. The choice is the one ``choose`` takes for as many steps as the account ran. It is
    right if no device would have finished earlier by more than a tie, by measured steps and predicted one-time costs.
    """
    known = {entry.name: entry for entry in ENTRIES}
    mine = [cell for cell in cells if cell.network in known]
    accelerators = list(dict.fromkeys(cell.device for cell in mine if cell.device != "cpu"))
    tables: dict[str, tuple[Row, ...]] = {}
    for threads in dict.fromkeys(cell.threads for cell in mine):
        found = {(cell.network, cell.batch, cell.device): cell for cell in mine if cell.threads == threads}
        for accelerator in accelerators or [""]:
            beside = f" and {accelerator}" if accelerator else ""
            title = f"Reference systems on the CPU with {thread_count(threads)}{beside}"
            tables[title] = tuple(
                _row(
                    entry, case, found.get((entry.name, case.batch, "cpu")),
                    found.get((entry.name, case.batch, accelerator)),
                )
                for entry in ENTRIES
                for case in entry.cases
                if any((entry.name, case.batch, device) in found for device in ("cpu", accelerator))
            )  # fmt: skip
    return tables


def _row(entry: Reference, case: Case, cpu: Cell | None, gpu: Cell | None) -> Row:
    steps = entry.steps(case)
    there = [cell for cell in (cpu, gpu) if cell is not None]
    predicted = {cell.device: _total(cell, cell.predicted, steps) for cell in there}
    measured = {cell.device: _total(cell, cell.measured, steps) for cell in there}
    choice = _fastest(predicted)
    return (
        entry.system,
        entry.variant,
        f"{case.batch:,}",
        "-" if case.rows is None else f"{case.rows:,}",
        *_times(cpu),
        *_times(gpu),
        choice or "-",
        _verdict(choice, measured),
        _repaid(entry, case, cpu, gpu),
        case.reported,
    )


def _times(cell: Cell | None) -> tuple[str, str]:
    if cell is None:
        return NOT_PREDICTED, NOT_MEASURED
    return (
        NOT_PREDICTED if cell.predicted is None else format_seconds(cell.predicted),
        NOT_MEASURED if cell.measured is None else format_seconds(cell.measured),
    )


def _total(cell: Cell, step_seconds: float | None, steps: int | None) -> float | None:
    """Seconds of the account's run; of one step where the run is a long one."""
    if step_seconds is None or steps is None:
        return step_seconds
    return (cell.one_time_seconds or 0.0) + steps * step_seconds


def _fastest(totals: Mapping[str, float | None]) -> str | None:
    """None where a device is without a time: ``choose`` would fall back to the conventional rule."""
    known = {device: total for device, total in totals.items() if total is not None}
    return min(known, key=known.__getitem__) if known and len(known) == len(totals) else None


def _verdict(choice: str | None, measured: Mapping[str, float | None]) -> str:
    """A judgement needs a choice, and a measurement on each of two devices."""
    best = _fastest(measured)
    if choice is None or best is None or len(measured) < 2:
        return "-"
    chosen_total, best_total = measured[choice], measured[best]
    assert chosen_total is not None
    assert best_total is not None
    return "right" if chosen_total <= best_total * (1.0 + TIE) else "wrong"


def _repaid(entry: Reference, case: Case, cpu: Cell | None, gpu: Cell | None) -> str:
    """Epochs (steps where there is no data set) after which the accelerator's one-time cost is repaid, as predicted."""
    if cpu is None or gpu is None or cpu.predicted is None or gpu.predicted is None or gpu.one_time_seconds is None:
        return "-"
    saved = cpu.predicted - gpu.predicted
    return repaid_after(entry, case, math.floor(gpu.one_time_seconds / saved) + 1 if saved > 0.0 else None)


def repaid_after(entry: Reference, case: Case, steps: int | None) -> str:
    """For people: so many steps, None being never, as epochs; as steps where there is no data set."""
    if steps is None:
        return "never"
    if case.rows is None:
        return f"{steps:,} step{'' if steps == 1 else 's'}"
    epochs = math.ceil(steps / entry.steps_per_epoch(case))
    return f"{epochs:,} epoch{'' if epochs == 1 else 's'}"
