"""One list of sections as text, page and card: golden files, widths, and names of any kind."""

from __future__ import annotations

import dataclasses
import re
from collections import OrderedDict
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import chromium
import pytest
from explained import explained
from torch import nn

import placer
from placer.decision import Decision, answer, ask, with_batch
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


LONG = "a_module_that_nobody_would_call_by_a_name_shorter_than_this_one_which_says_all_there_is_to_say_about_it"
#: What is shown on a screen: how far the page can be scrolled sideways, where the answer ends, and the smallest text.
SHOWN = """{
    sideways: document.documentElement.scrollWidth - innerWidth,
    ends: [
        document.getElementById('verdict'), document.querySelector('header table'),
        [...document.querySelectorAll('dt')].find(word => word.textContent == 'turns').nextElementSibling
    ].map(part => part.getBoundingClientRect().bottom),
    bars: [...document.querySelectorAll('header .fill')].map(bar => bar.getBoundingClientRect().width),
    plots: [...document.querySelectorAll('.plot svg')].map(
        plot => plot.getBoundingClientRect()).filter(box => box.width),
    smallest: Math.min(...[...document.querySelectorAll('p, li, td, th, dt, dd, svg text')].map(
        text => parseFloat(getComputedStyle(text).fontSize) * (text.ownerSVGElement ? scale(text) : 1))),
    colours: [getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]
}"""
#: By how much a text in a plot that is shown is scaled.
SCALE = "text => text.getScreenCTM() ? Math.hypot(text.getScreenCTM().a, text.getScreenCTM().b) : 1"


@pytest.mark.skipif(chromium.PROGRAM is None, reason="there is no chromium")
def test_the_first_screen_has_the_answer_and_nothing_is_cut_off(handmade_profile: Profile, tmp_path: Path) -> None:
    pytest.importorskip("vl_convert")
    block = nn.Sequential(OrderedDict({LONG: nn.Linear(64, 64), "relu": nn.ReLU()}))
    workload = make_workload(nn.Sequential(*[nn.Sequential(block, nn.LayerNorm(64)) for _ in range(8)]), (8, 64))
    question = ask(workload, profile=handmade_profile, what_if=["H100", "RTX PRO 6000 Blackwell Max-Q"])
    tables = {size: answer(question.of(with_batch(workload, size))) for size in (8, 512)}
    made = Explanation.of(tables[8], turn=Turn(64.0, "cpu", "cuda", 8, 512))
    decision = dataclasses.replace(made.decision, objective="energy", speedup=None, reason=f"cpu: {NOTE}, {NOTE}")
    long = dataclasses.replace(made, decision=decision, workload={**made.workload, "target": LONG})
    page = long.to_html(Sweep("batch", tables)) + long._repr_html_()  # the card of a notebook, below the page
    shown = f"(scale => ({SHOWN}))({SCALE})"
    colours = set()
    for screen, dark in (((390, 844), True), ((1200, 800), False)):
        width, height = screen
        seen = chromium.evaluated(page, shown, tmp_path, screen=screen, dark=dark)
        assert seen["sideways"] == 0
        assert max(seen["ends"]) < height
        assert len(seen["bars"]) == len(made.devices)
        assert min(seen["bars"]) >= 1.0
        assert len(seen["plots"]) == 1 + len(made.timeline)
        assert all(0 < box["left"] < box["right"] < width for box in seen["plots"])
        assert seen["smallest"] > 11.5
        colours |= set(seen["colours"])
    assert len(colours) == 4


def luminance(colour: str) -> float:
    """Relative luminance of ``#rgb`` or ``#rrggbb``, as WCAG 2.2 defines it."""
    digits = colour[1:] if len(colour) == 7 else "".join(2 * digit for digit in colour[1:])
    shares = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    red, green, blue = (share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_colours_stand_out_on_light_and_on_dark_paper() -> None:
    style = (Path(placer.__file__).parent / "explanation" / "report" / "report.css").read_text(encoding="utf-8")
    light, dark = re.findall(r":root \{(.*?#.*?)\}", style, re.DOTALL)
    for theme in (light, dark):
        colours = dict(re.findall(r"--([a-z0-9-]+): (#\w+)", theme))
        paper = luminance(colours["paper"])
        for name in colours.keys() - {"paper", "line", "well"}:
            dim, bright = sorted((paper, luminance(colours[name])))
            least = 4.5 if name in ("ink", "quiet") else 3.0  # text, and parts of a plot
            assert (bright + 0.05) / (dim + 0.05) >= least, name
