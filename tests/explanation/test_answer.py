"""The short answer: a line for each fact that decides, with figures that are those of the data."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from explained import explained
from torch import nn

import placer
from placer import load_profile
from placer.decision import Advice, current_profile
from placer.explanation import Explanation, Measured, Turn, accuracy
from placer.explanation.accuracy import Record
from placer.pricing import Prediction
from placer.profile import Profile

Make = Callable[..., Prediction]
ROOT = Path(__file__).resolve().parents[2]
ADVICE = Advice("op", "silu in place of mish", "torch.nn.functional.silu", "cuda@A", 1e-3, 0.8e-3, 0.2, True, True)
GPUS = ("cuda@Tesla T4", "cuda@RTX 4090", "cuda@H100 80GB HBM3")


def full_answer(make: Make, names: tuple[str, ...], seconds: tuple[float, ...]) -> Explanation:
    """One that has every kind of line, with what makes each of them long."""
    steps = dict(zip(names, seconds, strict=True))
    predictions = {
        name: make(name, step, bounded_by="launches", provenance="data sheet" if "4090" in name else "published")
        for name, step in steps.items()
    }
    return dataclasses.replace(
        explained(predictions),
        advice=(ADVICE,),
        turn=Turn(57.3, "cpu", names[-1], 1, 65_536) if len(names) > 1 else None,
        limits={name: {"launches": 0.8 * step} for name, step in steps.items()},
        measured={name: Measured(1e-3, 0.9e-3, 1.1e-3, 0.5) for name in names if "@" not in name},
    )


def facts(lines: list[str]) -> list[str]:
    """The words that sentences begin with."""
    return [line.split("  ")[0] for line in lines if "█" not in line and re.match(r"[a-z]+( [a-z]+)? {2,}\S", line)]


@pytest.mark.parametrize("width", [80, 100])
@pytest.mark.parametrize("seconds", [(2.41e-3, 1.95e-3, 1.94e-3, 0.95e-3), (1e-3, 3e-3, 4e-3, 5e-3), (1e-3,) * 4])
@pytest.mark.parametrize("names", [("cpu",), ("cpu", GPUS[0]), ("cpu", *GPUS), ("cpu", "cuda", *GPUS[:2])])
def test_each_fact_is_there_once(
    make_prediction: Make, names: tuple[str, ...], seconds: tuple[float, ...], width: int
) -> None:
    found = full_answer(make_prediction, names, seconds[: len(names)])
    lines = found.to_text(width).splitlines()
    assert max(map(len, lines)) <= width
    for name in names:
        (bar,) = [line for line in lines if re.match(rf"{re.escape(name)}( [§†‡])? +\d", line)]
        assert "█" in bar
        assert re.search(r"\d–\d", bar)
    assert lines.count("") == 2  # above and below the bars
    turns = ["turns"] if len(names) > 1 else []
    assert facts(lines) == ["why", *turns, "rests on", "advice", "measured"]
    roomy = found.to_text(1000).splitlines()
    assert len(roomy) == 1 + 2 + len(names) + len(facts(lines))  # where there is room, a fact is a line
    assert found.to_text(width, full=True).startswith(found.to_text(width))


def test_a_device_that_was_asked_for_and_cannot_run_it_is_told(handmade_profile: Profile) -> None:
    model = nn.Linear(4, 2)
    optimizer = torch.optim.Adam(model.parameters(), capturable=True)
    text = str(placer.explain(model, (3, 4), optimizer=optimizer, profile=handmade_profile, what_if="T4"))
    (told,) = [line for line in text.splitlines() if line.startswith("note ")]
    assert told.split(maxsplit=1)[1].startswith("cpu is left out: Adam has capturable=True")


def test_why_has_the_figures(make_prediction: Make) -> None:
    found = full_answer(make_prediction, ("cpu", "cuda"), (3e-3, 1.5e-3))
    assert "cuda is launch-bound, 1.20 of 1.50 ms is starting operations; cpu is launch-bound, 2.40 of" in str(found)
    net = nn.Sequential(nn.Linear(84, 64), nn.ReLU(), nn.Linear(64, 1))
    real = placer.explain(net, (512, 84), profile="amd-epyc-2-core", what_if="T4")
    for name, limits in real.limits.items():
        assert sum(limits.values()) == pytest.approx(real.devices[name].step_seconds)
        assert max(limits, key=lambda bound: limits[bound]) == real.devices[name].bounded_by


@pytest.mark.parametrize("batch", [57.3, None])
def test_where_it_turns_is_told_with_the_number_of_steps(make_prediction: Make, batch: float | None) -> None:
    found = full_answer(make_prediction, ("cpu", "cuda"), (3e-3, 1.5e-3))
    turn = Turn(batch, "cpu", "cuda", 1, 65_536)
    limited = dataclasses.replace(found, turn=turn, workload={**found.workload, "steps": 1000})
    assert re.search("^turns .*, for 1,000 steps$", str(limited), re.MULTILINE)


# Money and energy.


def priced(**values: Any) -> Explanation:
    net = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
    options = placer.Options(**values)
    return placer.explain(net, (256, 512), mode="train", profile="amd-epyc-2-core", what_if="A100", options=options)


def test_the_cheaper_device_is_chosen_and_the_trade_is_one_line() -> None:
    found = priced(objective="cost", price={"cpu": 0.05, "cuda": 4.0})
    text = found.to_text(full=True)
    assert re.match(r"cpu: \S+ of what cuda@A100", text)
    assert re.search(r"^ cuda.* as fast for .*× the money$", text, re.MULTILINE)
    assert found.to_dict()["devices"]["cpu"]["dollars_per_hour"] == 0.05
    with pytest.raises(placer.PlacerError, match="no price is given for cuda@A100"):
        priced(objective="cost", price={"cpu": 0.05})


def test_energy_is_marked_as_an_estimate_and_watts_may_be_given() -> None:
    found = priced(objective="energy")
    assert "Energy (~) is an estimate" in found.to_text(full=True)
    assert all(row.watts for row in found.devices.values())
    told = priced(objective="energy", watts={"cpu": 1.0, "cuda": 1000.0})
    assert told.decision.device == "cpu"
    assert [row.watts for row in told.devices.values()] == [1.0, 1000.0]


# What numbers rest on, and how far such numbers are off.


RECORDS = [
    *accuracy.CALIBRATED_CPU, *accuracy.ESTIMATED_CPU, *accuracy.CALIBRATED_GPU, *accuracy.PUBLISHED_GPU,
    *accuracy.SHEET_GPU, *accuracy.HOST_BOUND_GPU,
]  # fmt: skip


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.name)
def test_the_usual_errors_are_those_of_the_page_on_accuracy(record: Record) -> None:
    text = (ROOT / "docs" / "accuracy.md").read_text(encoding="utf-8")
    (row,) = [line for line in text.splitlines() if line.startswith(f"| {record.name}")]
    match = re.search(r"\| (\d+) / (\d+) % \|", row)
    assert match is not None, row
    assert (f"{100 * record.median:.0f}", f"{100 * record.most:.0f}") == (match[1], match[2])


def test_a_calibration_tells_its_own_error(handmade_profile: Profile) -> None:
    cpu, cuda = handmade_profile.fits
    held_out = dataclasses.replace(cpu, interval={**cpu.interval, "held_out": 0.2})
    own = placer.explain(
        nn.Linear(84, 64), (8, 84), profile=dataclasses.replace(handmade_profile, fits=(held_out, cuda))
    )
    assert own.usual_errors["cpu"].most == (pytest.approx(0.2214, abs=1e-4),) * 2
    alone = dataclasses.replace(own, devices={"cpu": own.devices["cpu"]})
    assert "a calibration here (9 in 10 steps within 22%" in str(alone)
    assert own.usual_errors["cuda"].records == tuple(record.name for record in accuracy.CALIBRATED_GPU)


def test_an_estimate_tells_what_a_calibration_would_bring_unless_its_class_is_known(
    make_prediction: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accuracy, "ESTIMATED_CPU", (Record("one", 0.10, 0.50), Record("two", 0.20, 0.40)))
    monkeypatch.setattr(accuracy, "CALIBRATED_CPU", (Record("one", 0.05, 0.30),))
    explained_by_estimate = explained({"cpu": make_prediction("cpu", 1e-3, provenance="published")})
    rests = (
        "rests on  § a similar CPU (usually 10–20% off, 9 in 10 within 50%; placer calibrate, a minute: 5%, within 30%)"
    )
    assert rests in explained_by_estimate.to_text(1000)
    assert Explanation.from_dict(json.loads(explained_by_estimate.to_json())) == explained_by_estimate
    profile = current_profile()  # an estimate
    for known, told in ((False, "placer calibrate, a minute: 5%, within 30%"), (True, "its class is known, placer")):
        monkeypatch.setattr(accuracy, "of_known_class", lambda facts, known=known: known)
        found = accuracy.off_before_calibration(profile)
        assert found.startswith(f"CPU times are usually 10–20% off, 9 in 10 within 50%; {told}")
    assert placer.explain(nn.Linear(4, 2), (3, 4), what_if=()).usual_errors["cpu"].known_class is True


def test_an_interpreter_shows_a_line_of_an_explanation_and_of_a_profile(handmade_profile: Profile) -> None:
    found = placer.explain(nn.Linear(4, 2), (3, 4), profile=handmade_profile)
    assert repr(found).startswith(f"Explanation('{found.decision.device}: ")
    assert all(device in repr(handmade_profile) for device in handmade_profile.devices())
    assert max(len(repr(found)), len(repr(handmade_profile))) < 200
    assert accuracy.off_before_calibration(load_profile("amd-epyc-2-core")) == ""
