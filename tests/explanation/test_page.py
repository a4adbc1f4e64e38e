"""The page: its parts, and how it opens in a real browser, from the disk, with no network."""

from __future__ import annotations

import dataclasses
import re
import sys
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path

import chromium
import pytest
from explained import explained
from torch import nn

import placer
from placer.decision import Question, answer, gather
from placer.errors import PlacerError
from placer.explanation import Advice, Explanation, Sweep
from placer.pricing.prediction import Prediction
from placer.profile.profile import Profile
from placer.workload import make_workload

pytest.importorskip("jinja2")
pytest.importorskip("vl_convert")


@pytest.fixture
def explanation(make_prediction: Callable[..., Prediction]) -> Explanation:
    once = {"one_time_seconds": 1.5, "one_time": {"context": 0.5, "libraries": 1.0}}
    found = {
        "cpu": make_prediction("cpu", 2e-3, bounded_by="memory"),
        "cuda": make_prediction("cuda", 1e-3, bounded_by="launches", provenance="data sheet", **once),
    }
    made = explained(found, {"target": "<Net>", "mode": "train"}, {"cpu": "A & B"}, ("<script>",))
    return dataclasses.replace(made, advice=(Advice("op", "silu", "", "cpu", 2e-3, 1e-3, 0.5, guess=True),))


class Balanced(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag != "meta":  # the only void element there is
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_balanced_escaped_and_loads_nothing(explanation: Explanation) -> None:
    page = explanation.to_html()
    parser = Balanced()
    parser.feed(page)
    assert parser.open == []
    assert "&lt;Net&gt;" in page
    assert page.count("<script") == 1  # the page's own; the note's is text
    assert "<li>&lt;script&gt;</li>" in page
    assert re.search(r"https?://|src=|@import|url\(", page) is None


@pytest.mark.parametrize("package", ["vl_convert", "jinja2"])
def test_without_a_package_the_next_command_is_named(
    handmade_profile: Profile, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    found = placer.explain(nn.Linear(4, 4), (2, 4), profile=handmade_profile)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(PlacerError, match=r"pip install 'torch-placer\[report\]'"):
        found.to_html()


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[chromium.Page]:
    if chromium.PROGRAM is None:
        pytest.skip("there is no chromium")
    with chromium.browser(tmp_path_factory.mktemp("chromium")) as opened:
        yield opened


def test_the_page_opens_and_zooms(page: chromium.Page, handmade_profile: Profile, tmp_path: Path) -> None:
    block = nn.Sequential(nn.Linear(64, 64), nn.ReLU())
    net = nn.Sequential(*[nn.Sequential(block, nn.LayerNorm(64)) for _ in range(8)])
    candidates = gather(handmade_profile, None, here=False)
    rows = {size: answer(Question(make_workload(net, (size, 64)), candidates)) for size in (8, 512)}
    file = tmp_path / "report.html"
    file.write_text(Explanation.of(rows[8]).to_html(Sweep("batch", rows)), encoding="utf-8")
    page.open(file)
    title = page.evaluate("document.getElementById('verdict').textContent")
    assert title.startswith(f"{rows[8].decide().device}: ")

    # Zooming by keyboard: down to the first layer, Enter, and it is as wide as the icicle; Escape goes back.
    page.evaluate("document.querySelector('.icicle .cell').focus()")
    page.press("ArrowDown")
    assert page.evaluate("document.activeElement.getAttribute('aria-level')") == "2"
    width = "document.activeElement.getBoundingClientRect().width / document.activeElement.parentElement.clientWidth"
    page.evaluate("document.querySelectorAll('.cell').forEach(cell => { cell.style.transition = 'none'; })")
    before = page.evaluate(width)
    page.press("Enter")
    assert page.evaluate(width) == pytest.approx(1.0, abs=0.01)
    assert page.evaluate("document.getElementById('zoomed').textContent").strip()
    page.press("Escape")
    assert page.evaluate(width) == pytest.approx(before, abs=0.01)

    assert page.evaluate("document.querySelectorAll('.plot svg').length") == 3
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")

    style = "getComputedStyle(document.body)"
    light = page.evaluate(f"[{style}.backgroundColor, {style}.color]")
    page.open(file, dark=True)
    assert len({*light, *page.evaluate(f"[{style}.backgroundColor, {style}.color]")}) == 4

    # A narrow window needs no sideways scrolling; plots stay large enough to be read, and scroll in themselves.
    page.open(file, width=420)
    assert page.evaluate("document.documentElement.scrollWidth") <= 420
    assert page.evaluate("document.querySelector('.plot svg').getBoundingClientRect().width") > 500
    assert page.problems == []
