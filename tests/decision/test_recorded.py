"""Real step times of earlier runs: in place of predicted ones, and as an offset for other sizes of their network."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
import torch
from competing import compete
from torch import nn

import placer
from placer.decision import history, recorded
from placer.decision.recorded import FRESH, LATER, NEAR, with_recorded
from placer.decision.table import Table
from placer.pricing import NOT_PREDICTED, Prediction
from placer.profile import Profile

Make = Callable[..., Prediction]
TableOf = Callable[..., Table]
NOW = datetime(2026, 5, 1, 12, tzinfo=timezone.utc)
#: An entry of a version that knew no networks.
GOOD = {
    "kind": "steps",
    "workload": "key",
    "device": "cpu",
    "threads": 2,
    "step_seconds": 1.0,
    "low": 0.9,
    "high": 1.2,
    "steps_timed": 40,
}


def remember(**change: Any) -> None:
    """An entry as of these devices."""
    entry = {**GOOD, **change}
    history.record({**entry, "hardware": entry.get("hardware", recorded.hardware(str(entry["device"])))})


def model(units: int = 8) -> nn.Module:
    return nn.Sequential(nn.Linear(4, units), nn.ReLU(), nn.Linear(units, 1))


def choose(net: nn.Module, shape: Any = (16, 4), **options: Any) -> placer.Placement:
    return placer.choose(net, shape, **{"devices": "cpu", **options})


def run(placement: placer.Placement, seconds: float, count: int = 40) -> None:
    """Steps of that length, on a clock that is not the machine's; enough of them to be written down."""
    now = [0.0]
    placement.times._clock = lambda: now[0]
    for _ in range(count):
        with placement.step():
            now[0] += seconds
    placement.times._record()


def test_the_next_choice_uses_what_was_seen_and_says_so(calibrated: Profile) -> None:
    net = model()
    first = choose(net)
    assert "recorded in earlier runs" not in first.reason
    run(first, 0.25)
    second = choose(model())
    assert second.reason.endswith("(recorded in earlier runs on cpu)")
    assert second.predictions["cpu"].step_seconds == pytest.approx(0.25)
    assert sum(second.predictions["cpu"].components.values()) == pytest.approx(0.25)
    same = placer.explain(model(), (16, 4), devices="cpu")
    assert same.devices["cpu"].step_seconds == pytest.approx(0.25)
    assert "real steps recorded in earlier runs" in " ".join(same.to_text().split())
    moved = placer.explain(model(), (64, 4), devices="cpu")
    assert f"a calibration here, with {moved.real['cpu'].said}" in " ".join(moved.to_text().split())
    assert json.loads(moved.to_json())["real"]["cpu"] == {"said": moved.real["cpu"].said, "same_step": False}
    program = (
        "import placer; from torch import nn\n"
        "net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))\n"
        "print(placer.choose(net, (16, 4), devices='cpu').reason)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100, check=True)
    assert done.stdout.strip().endswith("(recorded in earlier runs on cpu)"), done.stderr
    run(second, 0.5)
    assert choose(net).predictions["cpu"].step_seconds == pytest.approx(0.5)  # the newest counts


def test_it_can_turn_the_choice(calibrated: Profile, make_prediction: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    compete(monkeypatch, {"cpu": make_prediction("cpu", 1e-3), "cpu:0": make_prediction("cpu:0", 2e-3)})
    net = model()
    placement = choose(net, devices=None, move=False)
    assert placement.decision.device == "cpu"
    run(placement, 4e-3)
    turned = choose(net, devices=None, move=False)
    assert turned.decision.device == "cpu:0"
    assert "recorded in earlier runs on cpu" in turned.reason
    # What was measured on both sides counts more than what one side is remembered for.
    assert "recorded" not in choose(net, devices=None, move=False, options=placer.Options(measure="always")).reason


def test_entries_that_say_nothing_usable_are_passed_over(table_of: TableOf, make_prediction: Make) -> None:
    """Of the usable ones the newest counts, and even steps are not taken for certainty."""
    table = table_of(make_prediction("cpu"), make_prediction("cuda"))
    remember(device="cuda", threads=1)
    for seconds in (2.0, 1.0):
        remember(step_seconds=seconds, low=seconds, high=seconds)
    unusable: tuple[dict[str, Any], ...] = (
        {"steps_timed": 3},
        {"step_seconds": "fast"},
        {"step_seconds": True},
        {"low": None},
        {"high": 1e-9},
        {"device": "warp"},
        {"threads": 99},
        {"kind": "decision"},
        {"hardware": "another CPU"},
    )
    for change in unusable:
        history.record({**GOOD, "hardware": recorded.hardware("cpu"), "step_seconds": 1.1, **change})
    costs = with_recorded(table).costs
    assert [(costs[device].step_seconds, costs[device].high) for device in ("cuda", "cpu")] == [(1.0, 1.2), (1.0, 1.1)]


# --- other sizes of the same network ----------------------------------------------------------------------------------


@pytest.fixture
def smaller(handmade_profile: Profile) -> Callable[..., None]:
    """Remembers a step of batch 32 that took twice its prediction of a second, so long ago."""

    def write(seconds_ago: float = 0.0, **change: Any) -> None:
        entry = {
            "time": (NOW - timedelta(seconds=seconds_ago)).isoformat(),
            "workload": "smaller",
            "network": "network",
            "batch": 32,
            "inputs": "32×4 float32",
            "step_seconds": 2.0,
            "low": 1.9,
            "high": 2.1,
            "priced_seconds": 1.0,
            "priced_by": recorded.priced_by(handmade_profile),
            **change,
        }
        remember(**entry)

    return write


def test_a_fresh_step_of_another_size_moves_the_prediction(
    table_of: TableOf, make_prediction: Make, smaller: Callable[..., None]
) -> None:
    table = table_of(make_prediction("cpu", 1.0, low=0.5, high=2.0), make_prediction("cuda", 1.5))
    smaller(10.0)
    after = with_recorded(table, NOW)
    found = after.costs["cpu"]
    assert found.step_seconds == pytest.approx(2.0)  # the offset whole
    assert (found.low, found.high) == pytest.approx((2.0 * math.exp(-1.645 * NEAR), 2.0 * math.exp(1.645 * NEAR)))
    assert sum(found.components.values()) == pytest.approx(2.0)
    assert found.components[NOT_PREDICTED] == pytest.approx(1.0)
    assert after.costs["cuda"] == table.costs["cuda"]
    assert (table.decide().device, after.decide().device, after.predicted) == ("cpu", "cuda", table)
    assert after.decide().reason.endswith("(from a step timed 10.0 s ago at batch 32 on cpu)")
    (note,) = after.parts[0].notes
    assert note.startswith("on cpu, a step timed 10.0 s ago at batch 32 took 2.00× its prediction")


def test_of_several_steps_the_nearest_counts_and_less_the_older_and_the_farther_away(
    table_of: TableOf, make_prediction: Make, smaller: Callable[..., None]
) -> None:
    def taken(step: float, minutes: int = 0) -> float:
        table = table_of(make_prediction("cpu", step))
        return with_recorded(table, NOW + timedelta(minutes=minutes)).costs["cpu"].step_seconds

    smaller(FRESH)
    assert [taken(1.0), taken(1.0, minutes=4)] == pytest.approx([2.0, 2.0**LATER])
    assert [taken(4.0), taken(0.25)] == pytest.approx([4.0 * 2.0**0.25, 0.25 * 2.0**0.25])  # by the ratio of both
    smaller(3600.0, workload="larger", priced_seconds=16.0, step_seconds=48.0, high=48.0)
    assert taken(16.0) == pytest.approx(16.0 * 3.0**LATER)  # older, but of that length
    assert taken(1.0) == pytest.approx(2.0)
    smaller(step_seconds=1.5, low=1.4)
    assert taken(1.0) == pytest.approx(1.5)  # the newest of one step
    remember(step_seconds=1.1)
    smaller()
    assert taken(1.0) == 1.1  # the very step, before any other


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"time": "yesterday"}, "a step timed earlier at batch 32"),
        ({"time": "2026-04-28T12:00:00+00:00"}, "3.00 days ago"),
        ({"time": "2026-05-01T12:00:00"}, "earlier"),
        ({"batch": None}, "0 s ago on 32×4"),
    ],
)
def test_when_and_at_which_size_a_step_was_timed_is_said(
    change: dict[str, Any], said: str, table_of: TableOf, make_prediction: Make, smaller: Callable[..., None]
) -> None:
    table = table_of(make_prediction("cpu", 1.0))
    for nothing in ({"priced_by": "another"}, {"priced_seconds": None}, {"priced_seconds": 0.0}, {"network": "other"}):
        smaller(**nothing)
    assert with_recorded(table, NOW) is table
    smaller(**change)
    after = with_recorded(table, NOW)
    assert said in after.decide().reason
    assert after.costs["cpu"].step_seconds == pytest.approx(2.0 ** (LATER if "time" in change else 1.0))


def test_offsets_do_not_add_up_from_choice_to_choice(calibrated: Profile) -> None:
    """Each is kept beside what was predicted without any."""
    alone = {rows: choose(model(), (rows, 4)).predictions["cpu"].step_seconds for rows in (16, 17, 18)}
    run(choose(model(), (16, 4)), 3.0 * alone[16])
    for rows in (17, 18, 17):
        placement = choose(model(), (rows, 4))
        assert placement.predictions["cpu"].step_seconds == pytest.approx(3.0 * alone[rows], rel=0.02)
        run(placement, 3.0 * alone[rows])
    entry = next(entry for entry in reversed(history.last(9)) if entry["kind"] == "steps")
    assert entry["priced_seconds"] == pytest.approx(alone[17])


def test_one_network_is_known_at_all_sizes_and_no_other_is_taken_for_it(calibrated: Profile) -> None:
    run(choose(model(), (16, 4)), 0.25)
    assert "a step timed" in choose(model(), (64, 4)).reason
    assert "a step timed" in choose(model(), (16, 4), loss=nn.MSELoss(), target=(16, 1)).reason
    for net, options in (
        (model(9), {}),
        (nn.Sequential(nn.Linear(4, 8), nn.Softmax(1), nn.Linear(8, 1)), {}),
        (model(), {"mode": "infer"}),
        (model(), {"optimizer": "sgd"}),
        (model(), {"data": "device"}),
        (model(), {"autocast": torch.bfloat16}),
    ):
        assert "a step timed" not in choose(net, (64, 4), **options).reason
