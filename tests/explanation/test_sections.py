"""One list of sections as text, page and card: golden files, widths, and names of any kind."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import chromium
import pytest
from explained import explained
from torch import nn

import placer
from placer.decision import Decision, Question, answer, gather
from placer.explanation import Advice, Explanation, LayerRow, Sweep, Turn, accuracy
from placer.placed import Placement
from placer.pricing import Prediction
from placer.profile import Profile
from placer.workload import make_workload

Make = Callable[..., Prediction]
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
def two(make_prediction: Make, monkeypatch: pytest.MonkeyPatch) -> Explanation:
    """Two devices, and all that can be said of them. The usual errors are those of some day."""
    for name, shares in (("CALIBRATED_CPU", (0.07, 0.13)), ("CALIBRATED_GPU", (0.18, 0.40))):
        monkeypatch.setattr(accuracy, name, tuple(accuracy.Record("", share, 2.0 * share) for share in shares))
    once = {"context": 0.4, "libraries": 0.8, "first_calls": 0.25, "weights": 0.05}
    found = {
        "cpu": make_prediction("cpu", 2e-3, compute=1.5e-3, bounded_by="arithmetic"),
        "cuda": make_prediction(
            "cuda",
            1e-3,
            compute=0.2e-3,
            one_time_seconds=1.5,
            one_time=once,
            bounded_by="launches",
            coverage=0.8,
            sources=("calibrated",) * 4 + ("guess",),
            peak_memory_bytes=12_100_000_000,
        ),
    }
    made = explained(found, WORKLOAD, MACHINE, (NOTE,))
    sure = dataclasses.replace(made.decision, confidence=0.999)
    return dataclasses.replace(made, decision=sure, bounds=BOUNDS, advice=ADVICE)


def test_golden(two: Explanation) -> None:
    for name, content in (
        ("two_devices.txt", two.to_text(80, full=True, verify="")),
        ("two_devices.html", two._repr_html_() + "\n"),
        ("two_devices.json", two.to_json()),
    ):
        assert content == (GOLDEN / name).read_text(encoding="utf-8"), name
    long = tuple(LayerRow(f"encoder_of_many_words_{n}." + "x" * 90, "forward", {"cpu": 1.0}) for n in range(3))
    for explanation in (two, dataclasses.replace(two, layers=long)):
        for width in (80, 120):
            assert max(map(len, explanation.to_text(width, full=True, verify="").splitlines())) <= width


# No name can steer the terminal, or become markup.

HOSTILE = "cuda@\x1b[2J\x1b]0;owned\x07<script>alert(1)</script>&\"'\u202e\x9b31m\r\nfake: 1 s [bold]"


class Read(HTMLParser):
    """The tags, attributes and text of HTML. Fails where a tag is not closed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.open: list[str] = []
        self.feed(html)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag != "meta":  # the only void element there is
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture
def hostile(make_prediction: Make) -> Explanation:
    found = {"cpu": make_prediction("cpu", 2e-3), HOSTILE: make_prediction(HOSTILE, 1e-3)}
    made = explained(found, {"target": HOSTILE, "inputs": [HOSTILE], "mode": HOSTILE}, {"cpu": HOSTILE}, (HOSTILE,))
    layers = tuple(dataclasses.replace(row, name=HOSTILE.replace(".", "")) for row in made.layers)
    ops = tuple(dataclasses.replace(row, op=HOSTILE, family=HOSTILE) for row in made.ops)
    return dataclasses.replace(made, layers=layers, ops=ops, turn=Turn(5.0, "cpu", HOSTILE, 1, 9))


def test_no_name_steers_the_terminal(hostile: Explanation) -> None:
    text = hostile.to_text(full=True)
    assert "owned" in text
    assert all(character.isprintable() or character == "\n" for character in text)
    assert not any(line.startswith("fake") for line in text.splitlines())
    coloured = hostile.to_text(color=True, full=True)
    assert ["\x1b[1m" in coloured, "\x1b[2J" in coloured, "\x1b]0" in coloured] == [True, False, False]
    assert hostile.to_json().isascii()
    assert "\x1b" not in hostile.to_json()


def test_no_name_is_markup_in_a_card(hostile: Explanation) -> None:
    for html in (hostile._repr_html_(), Placement(Decision(HOSTILE, 1, None, HOSTILE))._repr_html_()):
        card = Read(html)
        assert set(card.tags) <= {"div", "table", "tr", "td"}
        assert {name for name, _ in card.attributes} <= {"style"}
        assert "owned" in card.text
        assert "\x1b" not in html


def test_a_placement_without_a_prediction_shows_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    unpredicted = Decision("cpu", 2, None, "cpu: by the default rule, as <no> accelerator is present")
    assert "by the default rule, as <no> accelerator is present" in Read(Placement(unpredicted)._repr_html_()).text
    monkeypatch.setenv("PLACER_DEVICE", "cpu")
    forced: Any = placer.choose(nn.Linear(2, 2), (1, 2))
    assert "set by PLACER_DEVICE" in Read(forced._repr_html_()).text


# The page: how it opens in a real browser, from the disk, with no network.


def test_the_page_escapes_every_name_and_loads_nothing(hostile: Explanation) -> None:
    pytest.importorskip("vl_convert")
    html = hostile.to_html()
    page = Read(html)
    assert not {"script", "img", "link", "iframe"} & set(page.tags)
    assert not {"src", "href"} & {name for name, _ in page.attributes}
    assert "alert(1)" in page.text
    assert not any(part in html for part in ("http://", "https://", "@import", "url("))


@pytest.mark.skipif(chromium.PROGRAM is None, reason="there is no chromium")
def test_the_page_opens(handmade_profile: Profile, tmp_path: Path) -> None:
    pytest.importorskip("vl_convert")
    block = nn.Sequential(nn.Linear(64, 64), nn.ReLU())
    net = nn.Sequential(*[nn.Sequential(block, nn.LayerNorm(64)) for _ in range(8)])
    candidates = gather(handmade_profile, None, here=False)
    rows = {size: answer(Question(make_workload(net, (size, 64)), candidates)) for size in (8, 512)}
    page = Explanation.of(rows[8]).to_html(Sweep("batch", rows))
    shown = """[
        document.getElementById('verdict').textContent, document.querySelector('dl').textContent,
        document.querySelectorAll('.plot svg').length, document.documentElement.scrollWidth <= innerWidth,
        getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color,
        document.querySelector('.plot svg').getBoundingClientRect().width
    ]"""
    verdict, facts, plots, fits, *light, _ = chromium.evaluated(page, shown, tmp_path)
    assert verdict.startswith(f"{rows[8].decide().device}: ")
    assert "why" in facts
    assert (plots, fits) == (3, True)
    # A narrow window needs no sideways scrolling; plots stay large enough to be read, and scroll in themselves.
    *_, fits, background, text, width = chromium.evaluated(page, shown, tmp_path, width=420, dark=True)
    assert fits
    assert width > 500
    assert len({*light, background, text}) == 4
