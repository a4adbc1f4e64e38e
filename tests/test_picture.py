"""The picture of README.md: the committed file is what the command draws, and it opens anywhere."""

from __future__ import annotations

import re
from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest
from docs_scripts import DOCS, load

from placer.explanation import Sweep

NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")
PICTURE = load("picture")


@pytest.fixture(scope="module")
def swept() -> Sweep:
    found: Sweep = PICTURE.swept()
    return found


@pytest.fixture(scope="module")
def committed() -> str:
    return (DOCS / "picture.svg").read_text(encoding="utf-8")


def numbers(text: str) -> list[float]:
    return [float(number.replace(",", "")) for number in NUMBER.findall(text)]


def test_the_picture_is_what_the_command_draws(swept: Sweep, committed: str) -> None:
    drawn = PICTURE.draw(swept)
    assert NUMBER.sub("0", drawn) == NUMBER.sub("0", committed), "run docs/regenerate.py"
    assert numbers(drawn) == pytest.approx(numbers(committed), rel=0.02, abs=1.0), "run docs/regenerate.py"


def test_the_picture_says_what_a_screen_reader_needs_and_loads_nothing(committed: str) -> None:
    root = ET.fromstring(committed)
    names = {child.attrib.get("id"): child.text or "" for child in root}
    assert root.attrib["role"] == "img"
    assert [bool(names[name].strip()) for name in root.attrib["aria-labelledby"].split()] == [True, True]
    assert re.findall(r"https?://[^\"]*|url\(|@import|href", committed) == ["http://www.w3.org/2000/svg"]
    assert "@media (prefers-color-scheme: dark)" in committed
    assert len(committed.encode()) < 30_000


def test_a_picture_that_would_say_something_wrong_is_not_drawn(swept: Sweep) -> None:
    small = {batch: row for batch, row in swept.rows.items() if batch <= 8}
    with pytest.raises(ValueError, match="one batch size"):
        PICTURE.draw(replace(swept, rows=small))
