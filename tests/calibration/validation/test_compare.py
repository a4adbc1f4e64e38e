"""Scores of predictions and of decisions with exact numbers, and the report that shows them."""

from __future__ import annotations

import io
import math
from dataclasses import replace
from pathlib import Path

import pytest
from made_up_cells import cell, text_of

from placer.calibration.validation import record
from placer.calibration.validation.compare import (
    as_the_smallest_batch,
    beside_one_step,
    larger_batches,
    score,
)
from placer.calibration.validation.decisions import FEW_PARAMETERS, decisions, thread_decisions
from placer.calibration.validation.record import Cell, Report

RECORDS = Path(__file__).parents[3] / "calibration" / "records"
THREE = ("nvidia-h100-80gb-hbm3-16-core", "nvidia-h200-16-core", "nvidia-h200-16-core-second")


def test_score_of_hand_made_cells() -> None:
    predicted = (1.00, 1.05, 0.80, 1.50, 0.40)
    cells = [cell(f"net {seconds}", "cpu", seconds, 1.0) for seconds in predicted]
    found = score([*cells, cell("b", "cpu", None, 1.0), cell("c", "cpu", 9.0, None)])
    assert (found.rows, found.unpredicted, found.failed) == (5, 1, 1)  # what is missing is in no number
    assert found.median_error == pytest.approx(0.20)
    assert found.p90_error == pytest.approx(0.56)  # errors 0, .05, .2, .5, .6
    assert (found.within_10, found.within_25, found.beyond_2x) == (0.4, 0.6, 0.2)
    assert found.inside == 0.6  # 0.8 * 1.25 = 1.0 just reaches it
    assert found.bias == pytest.approx(math.log(1.0 * 1.05 * 0.8 * 1.5 * 0.4) / 5)
    assert found.median_ratio == 1.0
    nothing = score([cell("a", "cpu", None, 1.0)])
    assert (nothing.rows, math.isnan(nothing.median_error)) == (0, True)


#: Four scenarios: (network, cpu predicted, cpu measured, cuda predicted, cuda measured, parameters).
FOUR = [
    ("small", 1.0, 1.0, 5.0, 4.0, 10),  # right: cpu
    ("large", 9.0, 8.0, 2.0, 2.0, FEW_PARAMETERS),  # right: cuda
    ("tied", 1.00, 1.05, 1.10, 1.0, FEW_PARAMETERS - 1),  # wrong, within the tie
    ("missed", 1.0, 1.5, 2.0, 1.0, 10**9),  # wrong: 50 %
]


def test_decision_table_with_exact_numbers() -> None:
    cells: list[Cell] = []
    for name, cpu, cpu_measured, cuda, cuda_measured, parameters in FOUR:
        cells.append(replace(cell(name, "cpu", cpu, cpu_measured, roofline=1.0), parameters=parameters))
        cells.append(replace(cell(name, "cuda", cuda, cuda_measured, roofline=0.5), parameters=parameters))
    table = {row.rule: row for row in decisions(cells)}
    few = f"cpu below {FEW_PARAMETERS:,} parameters"
    assert set(table) == {"placer", "roofline", "always cpu", "always cuda", few}
    assert (table[few].wrong, table[few].mean_regret) == (0, pytest.approx(1.05**0.25 - 1))  # cpu, cuda, cpu, cuda
    placer = table["placer"]
    assert (placer.scenarios, placer.wrong, placer.worst_regret) == (4, 1, pytest.approx(0.5))
    assert placer.mean_regret == pytest.approx((1.05 * 1.5) ** 0.25 - 1)
    assert placer.worst == "missed, batch 32, train: cpu instead of cuda"
    assert (table["always cuda"].wrong, table["always cuda"].worst_regret) == (1, pytest.approx(3.0))
    assert table["always cpu"].mean_regret == pytest.approx((4.0 * 1.05 * 1.5) ** 0.25 - 1)
    assert table["roofline"].mean_regret == table["always cuda"].mean_regret
    assert few not in {row.rule for row in decisions([*cells, cell("?", "cpu", 1.0, 1.0), cell("?", "cuda", 1.0, 1.0)])}
    # Without a prediction the conventional rule is scored; one measured device decides nothing.
    assert decisions([cell("a", "cpu", 1.0, 1.0), cell("a", "cuda", None, 3.0)])[0].worst_regret == pytest.approx(2.0)
    assert decisions([cell("a", "cpu", 1.0, 1.0), cell("b", "cpu", 1.0, 1.0), cell("a", "cuda", 1.0, None)]) == []


def threaded(network: str, threads: int, predicted: float | None, measured: float, device: str = "cpu") -> Cell:
    return replace(cell(network, device, predicted, measured), threads=threads)


def test_a_larger_batch_as_long_as_the_smallest() -> None:
    cells = [
        *(cell("a", "cuda", 1.0, seconds, batch=batch) for batch, seconds in ((8, 2.0), (1, 1.0), (64, 4.0))),
        cell("a", "cpu", 1.0, 9.0, batch=1),
        cell("b", "cuda", 1.0, None, batch=1),
        cell("b", "cuda", 1.0, 7.0, batch=8),
    ]
    assert [(found.batch, found.measured) for _, found in larger_batches(cells)] == [(8, 2.0), (64, 4.0)]
    found = as_the_smallest_batch(cells)
    assert (found.rows, found.median_error) == (2, pytest.approx(0.625))  # 1 of 2, and 1 of 4
    assert as_the_smallest_batch(cells[3:]).rows == 0  # nothing was measured with two batches


def test_thread_decisions_with_exact_numbers() -> None:
    cells = [
        threaded("small", 1, 1.0, 1.0),
        threaded("small", 2, 2.0, 1.6),  # right: 1 thread
        threaded("large", 1, 9.0, 8.0),
        threaded("large", 2, 5.0, 4.0),  # right: 2 threads
        threaded("tied", 1, 0.97, 0.5),
        threaded("tied", 2, 1.0, 1.0),  # within 5 %: all threads are kept, wrongly
        threaded("unknown", 1, None, 2.0),
        threaded("unknown", 2, 1.0, 1.0),  # as the process starts
        threaded("alone", 2, 1.0, 1.0),
    ]
    table = {row.rule: row for row in thread_decisions(cells)}
    assert list(table) == ["placer", "always all threads", "always 1 thread"]
    assert (table["placer"].scenarios, table["placer"].wrong) == (4, 1)
    assert table["placer"].mean_regret == pytest.approx(2.0**0.25 - 1)
    assert table["placer"].worst == "tied, batch 32, train: 2 threads instead of 1 thread"
    assert table["always all threads"].mean_regret == pytest.approx((1.6 * 2.0) ** 0.25 - 1)
    assert thread_decisions(cells[-1:]) == []
    beside = [*cells[:2], threaded("small", 1, 3.0, 4.0, "cuda"), threaded("small", 2, 3.0, 3.0, "cuda")]
    table = {row.rule: row for row in thread_decisions(beside)}
    assert (table["placer"].scenarios, table["placer"].worst_regret) == (1, 0.0)
    assert table["always cuda with all threads"].worst_regret == pytest.approx(2.0)


def test_beside_one_real_step_three_machines_keep_to_what_is_promised() -> None:
    """Larger batches on their GPUs, by the predictions that the records keep: 7.5 % in the median, 22 % in the tail."""
    moved: list[Cell] = []
    for name in THREE:
        cells = [cell for cell in record.load(RECORDS / name / "measurements.json").cells if cell.device != "cpu"]
        moved += beside_one_step(larger_batches(cells), 0.0)
    found = score(moved)
    assert found.rows > 300
    assert found.median_error < 0.075
    assert found.p90_error < 0.22
    assert 0.85 <= found.inside <= 0.95


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_report_has_errors_decisions_and_all_that_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    cells = [
        cell("net", device, predicted, measured, batch=batch)
        for device, batch, predicted, measured in (
            ("cpu", 1, 1e-3, 1.1e-3), ("cpu", 64, 1e-2, 3e-2), ("cuda", 1, 5e-3, 4e-3), ("cuda", 64, 5e-3, 6e-3),
        )
    ]  # fmt: skip
    failed = Cell("net", "mlp", 4096, "train", "cuda", 2, error="OutOfMemoryError: no", prediction_error="unknown")
    report = Report("2026-01-01", {"cpu": "x"}, "hand-made", (*cells, failed), {"gone": "not installed: y"})
    shown = text_of(report)
    lines = shown.splitlines()
    header = lines.index("Prediction error by device") + 1
    assert lines[header + 1].split()[:3] == ["cpu", "2", "37.9"]  # |1/1.1 - 1| = 9.1 %, |1/3 - 1| = 66.7 %
    assert "Decisions on the device over 2 scenarios" in shown
    assert "net, batch 4096, train on cuda with 2 threads  OutOfMemoryError: no" in shown
    assert "gone     not installed: y" in shown
    monkeypatch.setenv("COLUMNS", "70")
    narrow = text_of(report, Terminal())
    assert max(map(len, narrow.splitlines())) <= 70 < max(map(len, lines))
