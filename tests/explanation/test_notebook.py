"""The card that a notebook shows: an answer in HTML without scripts or colours of its own, whatever names it holds."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from html.parser import HTMLParser
from typing import Any

import pytest
from explained import explained
from torch import nn

import placer
from placer.decision import Decision
from placer.explanation import Turn
from placer.placed import Placement
from placer.pricing import Prediction

Make = Callable[..., Prediction]
HOSTILE = "cuda@\x1b]0;owned\x07<script>alert(1)</script>&\"'><img src=x onerror=alert(1)>"


class Read(HTMLParser):
    """The tags, attributes and text of a card. Fails where a tag is not closed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.styles: list[str] = []
        self.text = ""
        self.open: list[str] = []
        self.feed(html)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.open.append(tag)
        assert {name for name, _ in attrs} <= {"style"}
        self.styles += [value or "" for _, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_it_has_the_verdict_a_bar_with_its_interval_for_each_device_and_the_turn(make_prediction: Make) -> None:
    found = explained({"cpu": make_prediction("cpu", 2e-3), "cuda": make_prediction("cuda", 1e-3)})
    found = dataclasses.replace(found, turn=Turn(57.3, "cpu", "cuda", 1, 65_536))
    card = Read(found._repr_html_())
    for words in ("cuda: 2.00× as fast as cpu", "1.67–2.40 ms", "0.83–1.20 ms", "a batch of about 57, cuda from there"):
        assert words in card.text
    assert card.tags.count("tr") == 2
    whole = 2.4e-3
    for low, step, high in ((2e-3 / 1.2, 2e-3, 2.4e-3), (1e-3 / 1.2, 1e-3, 1.2e-3)):
        assert any(f"width:{100 * step / whole:.2f}%" in style for style in card.styles)
        assert any(f"left:{100 * low / whole:.2f}%;width:{100 * (high - low) / whole:.2f}%" in s for s in card.styles)
    assert not {"script", "style", "link", "svg", "img"} & set(card.tags)


def test_no_name_is_markup(make_prediction: Make) -> None:
    found = {"cpu": make_prediction("cpu", 2e-3), HOSTILE: make_prediction(HOSTILE, 1e-3)}
    made = explained(found, {"target": HOSTILE, "mode": HOSTILE})
    made = dataclasses.replace(made, turn=Turn(5.0, "cpu", HOSTILE, 1, 9))
    for html in (made._repr_html_(), Placement(Decision(HOSTILE, 1, None, HOSTILE))._repr_html_()):
        card = Read(html)
        assert not {"script", "img"} & set(card.tags)
        assert "owned" in card.text
        assert "\x1b" not in html


def test_a_placement_without_a_prediction_shows_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    unpredicted = Decision("cpu", 2, None, "cpu: by the default rule, as <no> accelerator is present")
    card = Read(Placement(unpredicted)._repr_html_())
    assert "by the default rule, as <no> accelerator is present" in card.text
    monkeypatch.setenv("PLACER_DEVICE", "cpu")
    forced: Any = placer.choose(nn.Linear(2, 2), (1, 2))
    assert "set by PLACER_DEVICE" in Read(forced._repr_html_()).text
