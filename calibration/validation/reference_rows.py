"""The reference systems of a validation report: what was predicted, measured and chosen, beside what was reported."""

from __future__ import annotations

import math
from collections.abc import Sequence

from placer.calibration.suite.reference import ENTRIES, Case, Reference
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
    names = {entry.name for entry in ENTRIES}
    mine = [cell for cell in cells if cell.network in names]
    accelerators = list(dict.fromkeys(cell.device for cell in mine if cell.device != "cpu"))
    tables: dict[str, tuple[Row, ...]] = {}
    for threads in dict.fromkeys(cell.threads for cell in mine):
        found = {(cell.network, cell.batch, cell.device): cell for cell in mine if cell.threads == threads}
        for accelerator in accelerators or [""]:
            beside = f" and {accelerator}" if accelerator else ""
            rows: list[Row] = []
            for entry in ENTRIES:
                for case in entry.cases:
                    cpu, gpu = (found.get((entry.name, case.batch, device)) for device in ("cpu", accelerator))
                    if cpu or gpu:
                        rows.append(_row(entry, case, cpu, gpu))
            tables[f"Reference systems on the CPU with {thread_count(threads)}{beside}"] = tuple(rows)
    return tables


def _row(entry: Reference, case: Case, cpu: Cell | None, gpu: Cell | None) -> Row:
    steps = entry.steps(case)
    there = [cell for cell in (cpu, gpu) if cell is not None]
    predicted = _run_seconds(there, [cell.predicted for cell in there], steps)
    measured = _run_seconds(there, [cell.measured for cell in there], steps)
    choice = min(predicted, key=predicted.__getitem__) if predicted else "-"
    verdict = "-"
    if predicted and len(measured) > 1:
        verdict = "right" if measured[choice] <= min(measured.values()) * (1.0 + TIE) else "wrong"
    return (
        entry.system, entry.variant, f"{case.batch:,}", "-" if case.rows is None else f"{case.rows:,}",
        *_times(cpu), *_times(gpu), choice, verdict, _repaid(entry, case, cpu, gpu), case.reported,
    )  # fmt: skip


def _times(cell: Cell | None) -> tuple[str, str]:
    predicted, measured = (None, None) if cell is None else (cell.predicted, cell.measured)
    return (
        NOT_PREDICTED if predicted is None else format_seconds(predicted),
        NOT_MEASURED if measured is None else format_seconds(measured),
    )


def _run_seconds(cells: Sequence[Cell], seconds: Sequence[float | None], steps: int | None) -> dict[str, float]:
    """Seconds of the account's run by device, given those of a step; of one step where the run is a long one.

    Empty where a device is without a time: ``choose`` would fall back to the conventional rule.
    """
    known = {
        cell.device: step if steps is None else (cell.one_time_seconds or 0.0) + steps * step
        for cell, step in zip(cells, seconds, strict=True)
        if step is not None
    }
    return known if len(known) == len(cells) else {}


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
