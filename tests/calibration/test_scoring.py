from __future__ import annotations

import math
from dataclasses import replace

import pytest

from placer.calibration.record import Cell
from placer.calibration.scoring import (
    batch_band,
    decisions,
    error_of,
    flop_threshold,
    group_by,
    scenarios,
    score,
    time_band,
)


def cell(
    network: str, device: str, predicted: float | None, measured: float | None, *, batch: int = 32, flops: float = 1.0,
    roofline: float | None = None,
) -> Cell:  # fmt: skip
    return Cell(
        network, "mlp", batch, "train", device, 2, predicted=predicted, measured=measured, flops=flops,
        low=None if predicted is None else predicted * 0.8, high=None if predicted is None else predicted * 1.25,
        baselines={} if roofline is None else {"roofline": roofline},
    )  # fmt: skip


def test_score_of_hand_made_cells() -> None:
    cells = [
        cell("a", "cpu", 1.00, 1.0),
        cell("b", "cpu", 1.05, 1.0),
        cell("c", "cpu", 0.80, 1.0),
        cell("d", "cpu", 1.50, 1.0),
        cell("e", "cpu", 0.40, 1.0),
    ]
    found = score(cells)
    assert found is not None
    assert (found.cells, found.unpredicted, found.failed) == (5, 0, 0)
    assert found.median_error == pytest.approx(0.20)
    assert found.p90_error == pytest.approx(0.56)  # errors 0, .05, .2, .5, .6
    assert found.within_10 == 0.4
    assert found.within_25 == 0.6
    assert found.beyond_2x == 0.2  # 0.40 is more than twice too fast
    assert found.inside == 0.6  # 0.8 * 1.25 = 1.0 just reaches it
    assert found.bias == pytest.approx(math.log(1.0 * 1.05 * 0.8 * 1.5 * 0.4) / 5)


def test_what_is_missing_is_counted_and_in_no_number() -> None:
    cells = [cell("a", "cpu", 1.0, 1.0), cell("b", "cpu", None, 1.0), cell("c", "cpu", 9.0, None)]
    found = score(cells)
    assert found is not None
    assert (found.cells, found.unpredicted, found.failed) == (1, 1, 1)
    assert found.median_error == 0.0
    assert found.within_10 == 1.0


def test_score_without_cells_and_without_pairs() -> None:
    assert score([]) is None
    found = score([cell("a", "cpu", None, 1.0)])
    assert found is not None
    assert found.cells == 0
    assert math.isnan(found.median_error)
    assert math.isnan(found.bias)
    assert error_of(cell("a", "cpu", None, 1.0)) is None


def test_bands() -> None:
    assert [batch_band(cell("a", "cpu", 1, 1, batch=n)) for n in (1, 2, 127, 128, 1024)] == [
        "1", "2-15", "16-127", "128-1,023", "1,024 and more",
    ]  # fmt: skip
    assert [time_band(cell("a", "cpu", 1, t)) for t in (0.0005, 0.001, 0.05, 0.5, 2.0, None)] == [
        "below 1 ms", "1-10 ms", "10-100 ms", "0.1-1 s", "1 s and more", "not measured",
    ]  # fmt: skip
    groups = group_by([cell("a", "cpu", 1, 1), cell("a", "cuda", 1, 1), cell("b", "cpu", 1, 1)], lambda c: c.device)
    assert {name: len(cells) for name, cells in groups.items()} == {"cpu": 2, "cuda": 1}


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
    assert placer.confusion == {("cpu", "cpu"): 1, ("cuda", "cuda"): 1, ("cuda", "cpu"): 2}
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
    assert row.confusion == {("cpu", "cuda"): 1}
    assert row.worst_regret == pytest.approx(2.0)


def test_one_device_decides_nothing() -> None:
    assert decisions([cell("a", "cpu", 1.0, 1.0), cell("b", "cpu", 1.0, 1.0)]) == []
    assert decisions([cell("a", "cpu", 1.0, 1.0), cell("a", "cuda", 1.0, None)]) == []


def test_thread_counts_are_different_scenarios() -> None:
    cells = [*four(), *(replace(c, threads=1) for c in four())]
    assert len(scenarios(cells)) == 8
