"""Scores of decisions, with exact numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from placer.calibration.validation.decision_scoring import (
    decisions,
    flop_threshold,
    scenarios,
    thread_decisions,
    thread_scenarios,
)
from placer.calibration.validation.record import Cell

from .made_up import cell

#: Four scenarios: (network, cpu predicted, cpu measured, cuda predicted, cuda measured).
FOUR = [
    ("small", 1.0, 1.0, 5.0, 4.0),  # right: cpu
    ("large", 9.0, 8.0, 2.0, 2.0),  # right: cuda
    ("tied", 1.00, 1.05, 1.10, 1.0),  # wrong, within the tie
    ("missed", 1.0, 1.5, 2.0, 1.0),  # wrong: 50 %
]


def four() -> list[Cell]:
    flops = {"small": 1e3, "large": 1e9, "tied": 1e5, "missed": 1e7}
    return [
        made
        for name, cpu, cpu_measured, cuda, cuda_measured in FOUR
        for made in (
            cell(name, "cpu", cpu, cpu_measured, flops=flops[name], roofline=1.0),
            cell(name, "cuda", cuda, cuda_measured, flops=flops[name], roofline=0.5),
        )
    ]


def test_decision_table_with_exact_numbers() -> None:
    table = {row.rule: row for row in decisions(four())}
    assert list(table) == ["placer", "roofline", "best FLOP threshold", "always cpu", "always cuda"]
    placer = table["placer"]
    assert (placer.scenarios, placer.wrong) == (4, 1)
    assert placer.mean_regret == pytest.approx((1.05 * 1.5) ** 0.25 - 1)
    assert placer.worst_regret == pytest.approx(0.5)
    assert placer.worst == "missed, batch 32, train: cpu instead of cuda"
    assert table["always cuda"].wrong == 1
    assert table["always cuda"].worst_regret == pytest.approx(3.0)
    assert table["always cpu"].wrong == 2
    assert table["always cpu"].mean_regret == pytest.approx((4.0 * 1.05 * 1.5) ** 0.25 - 1)
    assert table["roofline"].mean_regret == table["always cuda"].mean_regret
    assert table["best FLOP threshold"].worst_regret == 0.0  # by chance these four can be told apart by FLOPs
    assert table["best FLOP threshold"].worst == ""


def test_flop_threshold_needs_every_count() -> None:
    asked = scenarios(four())
    threshold = flop_threshold(asked)
    assert threshold is not None
    assert 1e3 < threshold <= 1e5
    without = [replace(c, flops=None) if c.network == "small" else c for c in four()]
    assert flop_threshold(scenarios(without)) is None


def test_without_a_prediction_the_conventional_rule_is_scored() -> None:
    cells = [cell("a", "cpu", 1.0, 1.0), cell("a", "cuda", None, 3.0)]
    row = decisions(cells)[0]
    assert row.worst_regret == pytest.approx(2.0)


def test_one_device_decides_nothing() -> None:
    assert decisions([cell("a", "cpu", 1.0, 1.0), cell("b", "cpu", 1.0, 1.0)]) == []
    assert decisions([cell("a", "cpu", 1.0, 1.0), cell("a", "cuda", 1.0, None)]) == []


def test_thread_counts_are_different_scenarios() -> None:
    cells = [*four(), *(replace(c, threads=1) for c in four())]
    assert len(scenarios(cells)) == 8


def threaded(network: str, threads: int, predicted: float | None, measured: float, device: str = "cpu") -> Cell:
    return replace(cell(network, device, predicted, measured), threads=threads)


def test_thread_decisions_with_exact_numbers() -> None:
    cells = [
        threaded("small", 1, 1.0, 1.0), threaded("small", 2, 2.0, 1.6),  # right: 1 thread
        threaded("large", 1, 9.0, 8.0), threaded("large", 2, 5.0, 4.0),  # right: 2 threads
        threaded("tied", 1, 0.97, 0.5), threaded("tied", 2, 1.0, 1.0),  # within 5 %: all threads are kept, wrongly
        threaded("unknown", 1, None, 2.0), threaded("unknown", 2, 1.0, 1.0),  # as the process starts
        threaded("alone", 2, 1.0, 1.0),
    ]  # fmt: skip
    assert len(thread_scenarios(cells)) == 4
    table = {row.rule: row for row in thread_decisions(cells)}
    assert list(table) == ["placer", "always all threads", "always 1 thread"]
    assert (table["placer"].scenarios, table["placer"].wrong) == (4, 1)
    assert table["placer"].mean_regret == pytest.approx(2.0**0.25 - 1)
    assert table["placer"].worst_regret == pytest.approx(1.0)
    assert table["placer"].worst == "tied, batch 32, train: 2 threads instead of 1 thread"
    assert (table["always all threads"].wrong, table["always 1 thread"].wrong) == (2, 2)
    assert table["always all threads"].mean_regret == pytest.approx((1.6 * 2.0) ** 0.25 - 1)
    assert thread_decisions(cells[-1:]) == []


def test_places_are_devices_with_threads_beside_an_accelerator() -> None:
    cells = [
        threaded("a", 1, 1.0, 1.0), threaded("a", 2, 2.0, 2.0),
        threaded("a", 1, 3.0, 4.0, "cuda"), threaded("a", 2, 3.0, 3.0, "cuda"),
    ]  # fmt: skip
    table = {row.rule: row for row in thread_decisions(cells)}
    assert (table["placer"].scenarios, table["placer"].worst_regret) == (1, 0.0)
    assert table["always cuda with all threads"].worst_regret == pytest.approx(2.0)
    assert table["always cpu with all threads"].worst_regret == pytest.approx(1.0)
    assert "always cuda with 1 thread" in table
