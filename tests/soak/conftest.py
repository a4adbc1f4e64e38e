"""What takes minutes, or the machine to itself. Each test leaves a figure in the last table of docs/dev/reliability.md.

``PLACER_SOAK_SHARE=0.01`` runs a hundredth of everything, to see that it works; figures are written for all of it only.
"""

from __future__ import annotations

import datetime as dt
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from placer import machine

PAGE = Path(__file__).resolve().parents[2] / "docs" / "dev" / "reliability.md"
SHARE = float(os.environ.get("PLACER_SOAK_SHARE", "1"))

Note = Callable[[str, str], None]


@pytest.fixture
def share() -> float:
    """How much of the whole to run, 0 to 1."""
    return SHARE


@pytest.fixture
def note(capsys: pytest.CaptureFixture[str]) -> Note:
    """Writes a figure into the row of the page that begins with a key, with the day and the machine."""

    def write(key: str, figure: str) -> None:
        with capsys.disabled():
            print(f"\n{key}: {figure}")
        text = PAGE.read_text(encoding="utf-8")
        row = re.search(rf"^\| `{re.escape(key)}` \|.*\| (.*) \|$", text, re.MULTILINE)
        assert row is not None, f"{PAGE.name} has no row for {key!r}"
        if SHARE < 1.0:
            return
        day = dt.datetime.now(dt.timezone.utc).date()
        machine_facts = f"{machine.cpu_model()}, {machine.usable_cores()} cores, torch {torch.__version__}"
        told = f"{figure} ({day}, {machine_facts})"
        PAGE.write_text(text[: row.start(1)] + told + text[row.end(1) :], encoding="utf-8")

    return write
