"""What takes minutes, or the machine to itself. Each line leaves a figure for docs/dev/reliability.md.

``PLACER_SOAK_SHARE=0.01`` runs a hundredth of everything, to see that it works; figures are written for all of it only.
"""

from __future__ import annotations

import datetime as dt
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from placer import machine
from placer.profile.store import replace_file

FIGURES = Path(__file__).resolve().parents[2] / "docs" / "dev" / "reliability.json"
SHARE = float(os.environ.get("PLACER_SOAK_SHARE", "1"))

Note = Callable[[str, str], None]


@pytest.fixture
def share() -> float:
    """How much of the whole to run, 0 to 1."""
    return SHARE


@pytest.fixture
def note(capsys: pytest.CaptureFixture[str]) -> Note:
    """Keeps the figure of a line of the page, with the day and the machine."""

    def keep(line: str, figure: str) -> None:
        with capsys.disabled():
            print(f"\n{line}: {figure}")
        if SHARE < 1.0:
            return
        known = json.loads(FIGURES.read_text(encoding="utf-8"))
        known[line] = {
            "figure": figure,
            "day": dt.datetime.now(dt.timezone.utc).date().isoformat(),
            "machine": f"{machine.cpu_model()}, {machine.usable_cores()} cores, torch {torch.__version__}",
        }
        replace_file(FIGURES, json.dumps(known, indent=1, sort_keys=True, ensure_ascii=False).encode() + b"\n")

    return keep
