from __future__ import annotations

import re
import sys
from collections.abc import Callable
from html.parser import HTMLParser

import pytest

from placer.decision import decide
from placer.errors import PlacerError
from placer.explanation import Explanation, build
from placer.prediction import Prediction


@pytest.fixture
def explanation(make_prediction: Callable[..., Prediction]) -> Explanation:
    found = {"cpu": make_prediction("cpu", 2e-3), "cuda": make_prediction("cuda", 1e-3)}
    return build(found, decide(found, None), {"target": "<Net>", "mode": "train"}, {"cpu": "A & B"}, ("<script>",))


class Balanced(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_balanced_escaped_and_loads_nothing(explanation: Explanation) -> None:
    pytest.importorskip("jinja2")
    page = explanation.to_html()
    parser = Balanced()
    parser.feed(page)
    assert parser.open == []
    assert "&lt;Net&gt;" in page
    assert "<script" not in page
    assert re.search(r"https?://|src=|@import", page) is None
    assert "2.00× as fast" in page
    assert "<li>aten::addmm in block.first takes 79% of the forward pass on cpu" in page


def test_without_jinja2_the_next_command_is_named(explanation: Explanation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(PlacerError, match=r"pip install 'placer\[report\]'"):
        explanation.to_html()
