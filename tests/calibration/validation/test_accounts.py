from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from placer.calibration.suite.accounts import Account, Point, Step, hosts
from placer.calibration.validation import accounts as module
from placer.calibration.validation.accounts import (
    COLUMNS,
    host_profile,
    judge,
    price_point,
    read_reported,
    row,
    summary,
)
from placer.errors import PlacerError
from placer.profile import load


def step(batch: int, width: int, **more: Any) -> Step:
    return Step("perceptron", (f"{batch},{width}",), {"sizes": [width, width]}, data="device", **more)


def account(*points: Point, assumed: str = "") -> Account:
    return Account("mine", "T4", "i7-6700K", points, assumed)


SMALL = Point("small", (step(1, 16),))
LARGE = Point("large", (step(4096, 4096),))


def judged(reported: float, point: Point) -> module.Judged:
    (found,) = judge([account(point)], {("mine", point.at): reported})
    return found


@pytest.mark.parametrize(
    ("reported", "point", "verdict"),
    [(0.3, SMALL, "right"), (3.0, SMALL, "wrong"), (20.0, LARGE, "right"), (0.5, LARGE, "wrong"), (1.2, LARGE, "near")],
)
def test_a_clear_winner_is_held_against_what_was_reported(reported: float, point: Point, verdict: str) -> None:
    found = judged(reported, point)
    assert found.verdict == verdict
    assert found.said == ("CPU" if point is SMALL else "GPU")
    assert found.low < found.ratio < found.high


def test_equal_times_are_called_a_tie() -> None:
    drawn = Step("draw two", ("4096,4096",), on_host=True)
    found = judged(0.5, Point("waits", (drawn, step(1, 16))))
    assert (found.said, found.verdict) == ("tie", "tie")


def test_a_step_counts_as_often_and_on_the_side_that_it_says() -> None:
    once = price_point(account(SMALL), SMALL, 1.0)
    twice = price_point(account(SMALL), Point("t", (step(1, 16, count=2),)), 1.0)
    assert twice.cpu.step_seconds == pytest.approx(2 * once.cpu.step_seconds)
    beside = price_point(account(SMALL), Point("c", (step(1, 16), step(512, 512, counted=("cpu",)))), 1.0)
    assert beside.gpu.step_seconds == pytest.approx(once.gpu.step_seconds)
    assert beside.cpu.step_seconds > 2 * once.cpu.step_seconds


def test_a_gpu_elsewhere_is_driven_by_its_own_host() -> None:
    slow = price_point(account(SMALL), Point("s", SMALL.steps, gpu_host="i7-2600K"), 1.0)
    here = price_point(account(SMALL), SMALL, 1.0)
    assert slow.cpu.step_seconds == here.cpu.step_seconds
    assert slow.gpu.step_seconds > here.gpu.step_seconds


def test_a_host_prices_as_its_data_sheet_says() -> None:
    measured, scaled = load("amd-epyc-2-core").fit("cpu", 2), host_profile(hosts()["i7-6700K"]).fit("cpu")
    assert scaled.threads == 4
    assert scaled.rates["flops/float32"] > 1.5 * measured.rates["flops/float32"]
    assert scaled.interval["base"] > measured.interval["base"]


def test_what_is_not_in_the_collection_or_cannot_be_traced_is_said_and_left_out() -> None:
    broken = Point("broken", (Step("perceptron", ("1,3",), {"sizes": [16, 16]}),))
    said: list[str] = []
    found = list(judge([account(SMALL, broken, LARGE)], {("mine", "small"): 0.5, ("mine", "broken"): 2.0}, said.append))
    assert [j.point.at for j in found] == ["small"]
    assert said[0].startswith("mine, broken: ")
    assert "shapes cannot be multiplied" in said[0]
    assert said[1] == "mine, large: not in the collection"


def test_the_table_marks_a_stand_in_and_the_summary_counts() -> None:
    points = (SMALL, LARGE)
    found = list(judge([account(*points, assumed="the CPU")], {("mine", "small"): 0.5, ("mine", "large"): 0.5}))
    assert row(found[0])[:3] == ("mine", "small", "i7-6700K, Tesla T4 *")
    assert len(row(found[0])) == len(COLUMNS)
    lines = list(summary(found))
    assert "1 of 2 right (50%), 0 called a tie, 1 wrong" in lines[0]
    assert "all of them right in 0 of 1" in lines[1]


def test_reported_ratios_are_read_by_account_and_point(tmp_path: Path) -> None:
    path = tmp_path / "accounts.jsonl"
    path.write_text(json.dumps({"id": "a", "points": [{"at": "b1", "gpu_speedup": 2}]}) + "\n\n", encoding="utf-8")
    assert read_reported(path) == {("a", "b1"): 2.0}


@pytest.mark.parametrize("text", ["nothing", "{}", '{"id": "a", "points": [{"at": "b1"}]}', "[1]"])
def test_what_is_no_collection_is_refused_by_name(tmp_path: Path, text: str) -> None:
    path = tmp_path / "accounts.jsonl"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(PlacerError, match=r"accounts\.jsonl is no collection of accounts"):
        read_reported(path)
    with pytest.raises(PlacerError, match=r"no accounts in .*: No such file"):
        read_reported(tmp_path / "missing.jsonl")


def test_the_command_prints_and_writes_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "accounts", lambda: (account(SMALL),))
    collection, written = tmp_path / "accounts.jsonl", tmp_path / "out" / "table.md"
    collection.write_text(json.dumps({"id": "mine", "points": [{"at": "small", "gpu_speedup": 0.5}]}), encoding="utf-8")
    assert module.validate_accounts(collection, output=written) == 0
    assert "i7-6700K, Tesla T4" in capsys.readouterr().out
    page = written.read_text(encoding="utf-8").splitlines()
    assert page[0].startswith("| account | point |")
    assert page[1] == "|---|---|---|--:|--:|--:|---|---|---|"
    assert page[0].count("|") == page[2].count("|") == len(COLUMNS) + 1
    collection.write_text("", encoding="utf-8")
    assert module.validate_accounts(collection) == 1
