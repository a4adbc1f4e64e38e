"""Recorded steps are used by the next choice of the same workload, which says so."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from competing import compete
from torch import nn

import placer
from placer.decision import history, measured
from placer.decision.comparison import workload_key
from placer.decision.measured import Seen
from placer.pricing.prediction import Prediction
from placer.profile.profile import Profile
from placer.tracing import trace
from placer.workload import make_workload


def model(units: int = 8) -> nn.Module:
    return nn.Sequential(nn.Linear(4, units), nn.ReLU(), nn.Linear(units, 1))


def choose(net: nn.Module, shape: Any = (16, 4), **options: Any) -> placer.Placement:
    options.setdefault("devices", "cpu")
    return placer.choose(net, shape, **options)


def run(placement: placer.Placement, seconds: float, count: int = 40) -> None:
    """Steps of that length, on a clock that is not the machine's; enough of them to be written down."""
    now = [0.0]
    placement.times._clock = lambda: now[0]
    for _ in range(count):
        with placement.step():
            now[0] += seconds
    placement.times._record()


def test_the_next_choice_uses_what_was_seen_and_says_so(calibrated: Profile) -> None:
    first = choose(model())
    assert "seen in earlier runs" not in first.reason
    run(first, 0.25)
    second = choose(model())
    assert second.reason.endswith("(seen in earlier runs on cpu)")
    assert second.predictions["cpu"].step_seconds == pytest.approx(0.25)
    assert sum(second.predictions["cpu"].components.values()) == pytest.approx(0.25)
    assert any("seen in earlier runs" in note for note in second.explain().notes)
    assert placer.explain(model(), (16, 4), devices="cpu").devices["cpu"].step_seconds == pytest.approx(0.25)
    assert choose(model(9)).predictions["cpu"].step_seconds < 0.1
    assert choose(model(), (17, 4)).predictions["cpu"].step_seconds < 0.1


def test_the_same_model_object_learns_within_a_run(calibrated: Profile) -> None:
    net = model()
    placement = choose(net)
    run(placement, 0.25)
    again = choose(net)
    assert again.predictions["cpu"].step_seconds == pytest.approx(0.25)
    run(again, 0.5)
    assert choose(net).predictions["cpu"].step_seconds == pytest.approx(0.5)


def test_another_process_knows_it_too(calibrated: Profile) -> None:
    run(choose(model()), 0.25)
    program = (
        "import sys, torch, placer; from torch import nn\n"
        "p = placer.choose(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)), (16, 4), devices='cpu')\n"
        "print(p.reason, any(name.startswith('placer.pricing.gpu') for name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100, check=True)
    assert done.stdout.strip().endswith("(seen in earlier runs on cpu) False"), done.stderr  # and loads no catalog


def test_it_can_turn_the_choice(
    calibrated: Profile, make_prediction: Callable[..., Prediction], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {"cpu": make_prediction("cpu", 1e-3), "cpu:0": make_prediction("cpu:0", 2e-3)}
    compete(monkeypatch, found)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)  # what the hand-made predictions are for
    net = model()
    placement = choose(net, devices=None, move=False)
    assert placement.device == "cpu"
    run(placement, 4e-3)
    turned = choose(net, devices=None, move=False)
    assert turned.device == "cpu:0"
    assert "seen in earlier runs on cpu" in turned.reason
    # What was measured on both sides counts more than what one side is remembered for.
    assert "seen" not in choose(net, devices=None, move=False, measure="always").reason


@pytest.mark.parametrize("change", [
    {"steps_timed": 3}, {"step_seconds": "fast"}, {"step_seconds": -1.0}, {"low": None}, {"high": 1e-9},
    {"device": "warp"}, {"threads": 99}, {"kind": "decision"}, {"step_seconds": True}, {"hardware": "another CPU"},
])  # fmt: skip
def test_entries_that_say_nothing_usable_are_passed_over(
    change: dict[str, Any], make_prediction: Callable[..., Prediction]
) -> None:
    good = {"kind": "steps", "workload": "k" * 32, "device": "cpu", "threads": 2, "step_seconds": 1.0, "low": 0.9,
            "high": 1.2, "steps_timed": 40, "hardware": measured.hardware("cpu")}  # fmt: skip
    predictions = {"cpu": make_prediction("cpu")}
    history.record(good)
    assert measured.lookup("k" * 32, predictions) == {"cpu": Seen(1.0, 0.9, 1.2)}
    history.history_path().unlink()
    history.record({**good, **change})
    assert measured.lookup("k" * 32, predictions) == {}
    assert measured.lookup("other", predictions) == {}


def test_a_newer_entry_of_other_threads_or_devices_hides_nothing(make_prediction: Callable[..., Prediction]) -> None:
    good = {"kind": "steps", "workload": "key", "step_seconds": 1.0, "low": 0.9, "high": 1.2, "steps_timed": 40}
    for device, threads, seconds in (("cuda", 1, 1.1), ("cpu", 2, 1.0), ("cpu", 99, 1.2), ("warp", 2, 1.2)):
        measured.record({**good, "device": device, "threads": threads, "step_seconds": seconds})
    found = measured.lookup("key", {"cpu": make_prediction("cpu"), "cuda": make_prediction("cuda")})
    assert {device: seen.step_seconds for device, seen in found.items()} == {"cpu": 1.0, "cuda": 1.1}


def test_even_steps_are_not_taken_for_certainty(make_prediction: Callable[..., Prediction]) -> None:
    measured.record({"workload": "key", "device": "cpu", "threads": 2, "step_seconds": 1.0, "low": 1.0, "high": 1.0,
                     "steps_timed": 40})  # fmt: skip
    seen = measured.lookup("key", {"cpu": make_prediction("cpu")})["cpu"]
    assert seen.low < 0.95
    assert seen.high > 1.05


def test_the_newest_run_counts(make_prediction: Callable[..., Prediction]) -> None:
    for seconds in (1.0, 2.0, 3.0):
        measured.record({"workload": "key", "device": "cpu", "threads": 2, "step_seconds": seconds, "low": seconds,
                         "high": seconds, "steps_timed": 40})  # fmt: skip
    assert measured.lookup("key", {"cpu": make_prediction("cpu")})["cpu"].step_seconds == 3.0


def test_what_was_seen_counts_for_every_step_of_the_run(make_prediction: Callable[..., Prediction]) -> None:
    before = {"cpu": make_prediction("cpu", 1e-3, one_time_seconds=5.0, steps=100)}
    after = measured.corrected(before, {"cpu": Seen(3e-3, 2e-3, 4e-3)}, steps=100)["cpu"]
    assert after.total_seconds == pytest.approx(5.0 + 100 * 3e-3)
    assert sum(after.components.values()) == pytest.approx(3e-3)
    assert (after.low, after.high) == (2e-3, 4e-3)
    assert measured.corrected(before, {"cpu": Seen(3e-3, 2e-3, 4e-3)}, steps=None)["cpu"].total_seconds is None


def test_step_times_outlive_decisions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "MAX_BYTES", 8000)
    history.record({"kind": "steps", "workload": "old", "step_seconds": 1.0})
    for number in range(300):
        history.record({"kind": "decision", "number": number})
        assert history.history_path().stat().st_size <= 8000
    assert [json.loads(line)["workload"] for line in history.lines_with('"workload":"old"')] == ["old"]
    assert [entry["number"] for entry in history.last(2)] == [298, 299]


def test_a_disk_that_cannot_be_read_is_no_history(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PLACER_HOME", str(tmp_path / "file" / "home"))
    measured.record({"workload": "key"})
    assert history.lines_with("key") == []


def test_steps_that_differ_on_the_accelerator_alone_are_different_steps() -> None:
    def key(enabled: bool) -> str:
        def forward(self: nn.Module, x: torch.Tensor) -> torch.Tensor:
            with torch.autocast("cuda", dtype=torch.float16, enabled=enabled):
                return nn.functional.linear(x, self.weight)  # type: ignore[arg-type]

        kind = type("Cast", (nn.Linear,), {"forward": forward})
        workload = make_workload(kind(8, 4), (2, 8), mode="infer")
        return workload_key(trace(workload), workload)

    assert key(True) != key(False)
