"""No name can steer the terminal, or become markup."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from torch import nn

import placer
from placer.decision.decision import decide
from placer.explanation import Explanation, build
from placer.explanation.text import render_text as render
from placer.pricing.prediction import Prediction
from placer.printable import printable
from placer.profile.profile import Profile

HOSTILE = "\x1b[2J\x1b]0;owned\x07<script>alert(1)</script>&\"'\u202e\x9b31m\r\nfake: 1 s [bold]"


def test_only_what_is_not_printable_is_replaced() -> None:
    assert printable("plain 2×3 µs — <b>") == "plain 2×3 µs — <b>"
    assert printable({"a\n": ["\x1b[m", 1, None, ("\r",)]}) == {"a\ufffd": ["\ufffd[m", 1, None, ("\ufffd",)]}


@pytest.fixture
def explanation(make_prediction: Callable[..., Prediction]) -> Explanation:
    found = {"cpu": make_prediction("cpu", 2e-3), "cuda": make_prediction("cuda", 1e-3)}
    made = build(found, decide(found, None), {"target": HOSTILE, "inputs": [HOSTILE]}, {"cpu": HOSTILE}, (HOSTILE,))
    layers = tuple(replace(row, name=HOSTILE.replace(".", "")) for row in made.layers)
    ops = tuple(replace(row, op=HOSTILE, family=HOSTILE) for row in made.ops)
    return replace(made, layers=layers, ops=ops)


def test_the_text_holds_no_control_character(explanation: Explanation) -> None:
    text = explanation.to_text()
    assert "owned" in text
    assert all(character.isprintable() or character == "\n" for character in text)
    assert not any(line.startswith("fake") for line in text.splitlines())


def test_colour_comes_from_placer_alone(explanation: Explanation) -> None:
    coloured = render(explanation, color=True)
    assert "\x1b[1m" in coloured
    assert "\x1b[2J" not in coloured
    assert "\x1b]0" not in coloured


def test_the_page_escapes_every_name(explanation: Explanation) -> None:
    pytest.importorskip("jinja2")
    page = explanation.to_html()
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert" in page


def test_the_json_is_plain_ascii(explanation: Explanation) -> None:
    assert explanation.to_json().isascii()
    assert "\x1b" not in explanation.to_json()


def test_layers_of_a_real_model_may_be_called_anything(calibrated: Profile) -> None:
    pytest.importorskip("jinja2")
    model = nn.Sequential()
    model.add_module("<img src=x onerror=alert(1)>", nn.Linear(4, 4))
    model.add_module("\x1b[2J", nn.Linear(4, 4))
    found = placer.explain(model, (2, 4), devices=["cpu"], profile=calibrated)
    assert "<img" not in found.to_html()
    assert "\x1b" not in found.to_text()
