"""Accounts priced beside what they reported: who won, who is said to win, and what is left out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from placer.calibration.lab.suite.accounts import Account, Point, Step
from placer.calibration.lab.validators import accounts
from placer.calibration.lab.validators.accounts import COLUMNS, Judged, judge, price_point


def step(batch: int, width: int, **more: Any) -> Step:
    return Step("perceptron", (f"{batch},{width}",), {"sizes": [width, width]}, data="device", **more)


def account(*points: Point, assumed: str = "") -> Account:
    return Account("mine", "T4", "i7-6700K", points, assumed)


SMALL, LARGE = Point("small", (step(1, 16),)), Point("large", (step(4096, 4096),))
WAITS = Point("waits", (Step("draw two", ("4096,4096",), on_host=True), step(1, 16)))
BROKEN = Point("broken", (Step("perceptron", ("1,3",), {"sizes": [16, 16]}),))


def judged(reported: float, point: Point) -> Judged:
    (found,) = judge([account(point)], {("mine", point.at): reported})
    return found


@pytest.mark.parametrize(
    ("reported", "point", "said", "verdict"),
    [
        (0.3, SMALL, "CPU", "right"),
        (3.0, SMALL, "CPU", "wrong"),
        (20.0, LARGE, "GPU", "right"),
        (1.2, LARGE, "GPU", "near"),
        (0.5, WAITS, "tie", "tie"),
    ],
)
def test_a_clear_winner_is_held_against_what_was_reported(
    reported: float, point: Point, said: str, verdict: str
) -> None:
    found = judged(reported, point)
    assert (found.said, found.verdict) == (said, verdict)
    assert found.low < found.ratio < found.high


def test_a_step_counts_as_often_on_the_side_and_with_the_host_that_it_says() -> None:
    once, twice, beside, slow = (
        price_point(account(SMALL), point, 1.0)
        for point in (
            SMALL,
            Point("t", (step(1, 16, count=2),)),
            Point("c", (step(1, 16), step(512, 512, counted=("cpu",)))),
            Point("s", SMALL.steps, gpu_host="i7-2600K"),
        )
    )
    assert twice.cpu.step_seconds == pytest.approx(2 * once.cpu.step_seconds)
    assert beside.gpu.step_seconds == pytest.approx(once.gpu.step_seconds)
    assert beside.cpu.step_seconds > 2 * once.cpu.step_seconds
    assert (slow.cpu.step_seconds, slow.gpu.step_seconds > once.gpu.step_seconds) == (once.cpu.step_seconds, True)


def test_the_command_prints_and_writes_the_table_and_says_what_it_leaves_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(accounts, "rebuilt", lambda: (account(SMALL, BROKEN, LARGE, WAITS, assumed="the CPU"),))
    collection, written = tmp_path / "accounts.jsonl", tmp_path / "out" / "table.md"
    points = [{"at": name, "gpu_speedup": 0.5} for name in ("small", "large", "broken")]
    collection.write_text(json.dumps({"id": "mine", "points": points}) + "\n\n", encoding="utf-8")
    assert accounts.validate_accounts(collection, written) == 0
    shown, said = capsys.readouterr()
    broken, waits = said.splitlines()
    assert broken.startswith("mine, broken: ")
    assert waits == "mine, waits: not in the collection"
    assert "i7-6700K, Tesla T4 *" in shown  # a stand-in
    assert "1 of 2 right (50%), 0 called a tie, 1 wrong" in shown
    page = written.read_text(encoding="utf-8").splitlines()
    assert page[2] == "|---|---|---|--:|--:|--:|---|---|---|"
    assert page[1].count("|") == page[3].count("|") == len(COLUMNS) + 1
    collection.write_text("", encoding="utf-8")
    assert accounts.validate_accounts(collection) == 1
