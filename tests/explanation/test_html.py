from __future__ import annotations

import dataclasses
import html
import re
import sys
from collections.abc import Callable
from html.parser import HTMLParser

import pytest

from placer.decision.decision import decide
from placer.errors import PlacerError
from placer.explanation import Advice, Explanation, build
from placer.explanation.sentences import verdict
from placer.pricing.prediction import Prediction


@pytest.fixture
def explanation(make_prediction: Callable[..., Prediction]) -> Explanation:
    found = {"cpu": make_prediction("cpu", 2e-3), "cuda": make_prediction("cuda", 1e-3)}
    return build(found, decide(found, None), {"target": "<Net>", "mode": "train"}, {"cpu": "A & B"}, ("<script>",))


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
    pytest.importorskip("jinja2")
    pytest.importorskip("vl_convert")
    page = explanation.to_html()
    parser = Balanced()
    parser.feed(page)
    assert parser.open == []
    assert "&lt;Net&gt;" in page
    assert page.count("<script") == 1  # the page's own; the note's is text
    assert "&lt;script&gt;" in page
    assert re.search(r"https?://|src=|@import|url\(", page) is None
    assert "2.00× as fast" in page
    assert "<li>aten::addmm in block.first takes 79% of the forward pass on cpu" in page


def test_the_page_says_what_the_text_says(explanation: Explanation) -> None:
    pytest.importorskip("jinja2")
    pytest.importorskip("vl_convert")
    advised = dataclasses.replace(explanation, advice=(Advice("op", "silu", "", "cpu", 2e-3, 1e-3, 0.5, guess=True),))
    page = advised.to_html()
    for line in (*verdict(advised), "~50% less time: silu (1.00 ms instead of 2.00 ms, on cpu)"):
        assert html.escape(line, quote=False) in page
    found = tree_labels(page)
    assert found[0] == "(whole model): 2.00 ms, 100.0% of cpu"
    assert "block.first: 1.40 ms, 70.0% of cpu" in found


def test_the_page_shows_the_first_step_apart_and_what_bounds_each_device(
    make_prediction: Callable[..., Prediction],
) -> None:
    pytest.importorskip("jinja2")
    pytest.importorskip("vl_convert")
    once = {"one_time_seconds": 1.5, "one_time": {"context": 0.5, "libraries": 1.0}}
    found = {
        "cpu": make_prediction("cpu", 2e-3, bounded_by="memory"),
        "cuda": make_prediction("cuda", 1e-3, bounded_by="launches", **once),
    }
    explained = build(found, decide(found, None), {"target": "Net", "mode": "train"}, {})
    page = explained.to_html()
    assert '<th scope="row">bounded by</th><td>memory</td><td>launches</td>' in page
    heads = [f'<th scope="col">{head}</th>' for head in ("context", "libraries", "first step", "later step")]
    assert "".join(heads) in page
    assert '<th scope="row">cuda</th><td>500 ms</td><td>1.00 s</td><td>1.50 s</td><td>1.00 ms</td>' in page
    assert "The first step and the later ones" not in build(
        {"cpu": found["cpu"]}, decide({"cpu": found["cpu"]}, None), {"target": "Net", "mode": "train"}, {}
    ).to_html()


def tree_labels(page: str) -> list[str]:
    return re.findall(r'role="treeitem"[^>]*aria-label="([^"]*)"', page)


def test_without_the_plotting_library_the_next_command_is_named(
    explanation: Explanation, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("jinja2")
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    with pytest.raises(PlacerError, match=r"pip install 'torch-placer\[report\]'"):
        explanation.to_html()


def test_without_jinja2_the_next_command_is_named(explanation: Explanation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(PlacerError, match=r"pip install 'torch-placer\[report\]'"):
        explanation.to_html()
