"""The picture of README.md: the committed file is what the command draws, and it opens anywhere."""

from __future__ import annotations

import re

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
