"""The text: one golden file, its width, and names of any kind."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest
from explained import explained
from torch import nn

import placer
from placer.explanation import Advice, Explanation, LayerRow, accuracy, sureness
from placer.explanation import render_text as render
from placer.explanation.sentences import step_parts
from placer.explanation.text import bar
from placer.pricing.prediction import Prediction
from placer.printable import printable
from placer.profile.profile import Profile

GOLDEN = Path(__file__).parent / "golden"
WORKLOAD = {
    "target": "Net", "mode": "train", "inputs": ["32×84 float32"], "optimizer": "adam", "loss": None, "steps": None,
    "data": "host", "autocast": None, "parameters": 1234, "op_calls": 5,
}  # fmt: skip
MACHINE = {"cpu": "Some CPU", "cores": 2, "torch": "2.13.0", "calibrated": "2026-01-02"}
BOUNDS = {
    "cpu": {"arithmetic": 0.9e-3, "memory": 0.3e-3, "overhead": 0.0075e-3, "optimizer": 0.2925e-3},
    "cuda": {"arithmetic": 0.02e-3, "memory": 0.1e-3, "overhead": 0.041e-3, "optimizer": 0.039e-3},
}
ADVICE = (
    Advice("batch", "a batch of 128 instead of 32", "", "cuda", 31.25e-6, 10e-6, 0.68, guess=True),
    Advice("op", "silu in place of mish", "torch.nn.functional.silu", "cpu", 1e-3, 0.8e-3, 0.2, changes_results=True),
)
NOTE = "a note that is long enough to be wrapped somewhere around the eightieth column, so that its hanging shows"


@pytest.fixture
def usual_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of some day: docs/figures.py writes others with every change of a price."""
    for name, shares in (("CALIBRATED_CPU", (0.07, 0.13)), ("CALIBRATED_GPU", (0.18, 0.40))):
        monkeypatch.setattr(accuracy, name, tuple(accuracy.Record("", share, 2.0 * share) for share in shares))


@pytest.fixture
def explanations(make_prediction: Callable[..., Prediction], usual_errors: None) -> dict[str, Explanation]:
    cpu = make_prediction("cpu", 2e-3, compute=1.5e-3, bounded_by="arithmetic")
    once = {"context": 0.4, "libraries": 0.8, "first_calls": 0.25, "weights": 0.05}
    cuda = make_prediction(
        "cuda",
        1e-3,
        compute=0.2e-3,
        one_time_seconds=1.5,
        one_time=once,
        bounded_by="launches",
        coverage=0.8,
        sources=("calibrated",) * 4 + ("guess",),
        peak_memory_bytes=12_100_000_000,
    )
    one, two = {"cpu": cpu}, {"cpu": cpu, "cuda": cuda}
    both = explained(two, WORKLOAD, MACHINE, (NOTE,))
    return {
        "one_device": explained(one, WORKLOAD, MACHINE),
        "two_devices": dataclasses.replace(both, bounds=BOUNDS, advice=ADVICE),
    }


def test_golden(explanations: dict[str, Explanation]) -> None:
    text = render(explanations["two_devices"], width=80)
    assert text == (GOLDEN / "two_devices_80.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("width", [80, 120])
def test_lines_stay_within_the_width_however_long_names_are(explanations: dict[str, Explanation], width: int) -> None:
    long = tuple(LayerRow(f"encoder_of_many_words_{n}." + "x" * 90, "forward", {"cpu": 1.0}) for n in range(3))
    for explanation in (*explanations.values(), dataclasses.replace(explanations["two_devices"], layers=long)):
        assert max(map(len, render(explanation, width=width).splitlines())) <= width


@pytest.mark.parametrize(
    ("share", "width", "text"),
    [(1.0, 4, "████"), (0.5, 4, "██"), (0.15625, 4, "▋"), (0.0, 4, ""), (1e-9, 4, "▏"), (7.0, 4, "████")],
)
def test_a_bar_is_its_share_to_an_eighth_of_a_character(share: float, width: int, text: str) -> None:
    assert bar(share, width) == text


def test_sureness_never_claims_certainty() -> None:
    assert [sureness(p) for p in (0.5, 0.97, 0.999, 1.0)] == ["50%", "97%", ">99%", ">99%"]


def test_an_accelerator_that_waits_for_its_host_has_arithmetic_and_memory_too(handmade_profile: Profile) -> None:
    net = nn.Sequential(*(nn.Linear(256, 256) for _ in range(8)))
    found = placer.explain(net, (64, 256), profile="Tesla T4")
    assert found.devices["cuda"].bounded_by == "launches"
    parts = step_parts(found, "cuda")
    assert sum(parts.values()) == pytest.approx(found.devices["cuda"].step_seconds)
    assert min(parts[name] for name in ("arithmetic", "memory", "overhead", "starved")) > 0.0
    assert "dispatch" not in parts
    rows = [line.split() for line in render(found).splitlines()]
    assert {"arithmetic", "memory", "starting", "waiting"} <= {row[0] for row in rows if row}
    assert "dispatch" in step_parts(placer.explain(net, (64, 256), profile=handmade_profile), "cpu")


# No name can steer the terminal, or become markup.

HOSTILE = "\x1b[2J\x1b]0;owned\x07<script>alert(1)</script>&\"'\u202e\x9b31m\r\nfake: 1 s [bold]"


def test_only_what_is_not_printable_is_replaced() -> None:
    assert printable("plain 2×3 µs — <b>") == "plain 2×3 µs — <b>"
    assert printable({"a\n": ["\x1b[m", 1, None, ("\r",)]}) == {"a\ufffd": ["\ufffd[m", 1, None, ("\ufffd",)]}


def test_no_name_can_steer_the_terminal_or_become_markup(make_prediction: Callable[..., Prediction]) -> None:
    found = {"cpu": make_prediction("cpu", 2e-3), "cuda": make_prediction("cuda", 1e-3)}
    made = explained(found, {"target": HOSTILE, "inputs": [HOSTILE]}, {"cpu": HOSTILE}, (HOSTILE,))
    layers = tuple(dataclasses.replace(row, name=HOSTILE.replace(".", "")) for row in made.layers)
    ops = tuple(dataclasses.replace(row, op=HOSTILE, family=HOSTILE) for row in made.ops)
    hostile = dataclasses.replace(made, layers=layers, ops=ops)
    text = hostile.to_text(full=True)
    assert "owned" in text
    assert "[bold]" in text
    assert all(character.isprintable() or character == "\n" for character in text)
    assert not any(line.startswith("fake") for line in text.splitlines())
    coloured = hostile.to_text(color=True, full=True)
    assert "\x1b[1m" in coloured
    assert "\x1b[2J" not in coloured
    assert "\x1b]0" not in coloured
    assert hostile.to_json().isascii()
    assert "\x1b" not in hostile.to_json()


def test_the_page_escapes_every_name(calibrated: Profile) -> None:
    pytest.importorskip("jinja2")
    pytest.importorskip("vl_convert")
    model = nn.Sequential()
    model.add_module("<img src=x onerror=alert(1)>", nn.Linear(4, 4))
    model.add_module("\x1b[2J", nn.Linear(4, 4))
    found = placer.explain(model, (2, 4), devices=["cpu"], profile=calibrated)
    assert "<img" not in found.to_html()
    assert "\x1b" not in found.to_text(full=True)
