"""Scripts from the frameworks' own documentation end with the same losses with placer as without it.

In ``scripts/``, a line that ends in ``# + placer`` is added, and one that ends in ``# without placer: CODE`` stood
there as CODE: the script as its authors wrote it is made from that.
"""

from __future__ import annotations

import logging
import re
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from placer import machine
from placer.profile.profile import Profile

FOLDER = Path(__file__).parent / "scripts"
SCRIPTS = sorted(FOLDER.glob("*.py"))


def without_placer(source: str) -> str:
    """The script before placer was added to it."""
    kept = [line for line in source.splitlines() if not line.endswith("# + placer")]
    plain = [re.sub(r"^(\s*).*# without placer: (.*)$", r"\1\2", line) for line in kept]
    return "\n".join(plain) + "\n"


@pytest.fixture(autouse=True)
def _calibrated(calibrated: Profile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PLACER_STRICT", "1")  # a fallback would prove nothing
    monkeypatch.setattr(machine, "available_devices", lambda: ("cpu",))
    yield
    accelerate: Any = sys.modules.get("accelerate.state")
    if accelerate is not None:
        accelerate.AcceleratorState._reset_state(reset_partial_state=True)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore:.*num_workers.*")
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_losses_are_the_same_with_placer(script: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    source = script.read_text(encoding="utf-8")
    for package in re.findall(r"^(?:import|from) (\w+)", source, re.MULTILINE):
        pytest.importorskip(package, reason=f"{package} is not installed")
    original = tmp_path / script.name
    original.write_text(without_placer(source), encoding="utf-8")
    caplog.set_level(logging.INFO, logger="placer")
    before = runpy.run_path(str(original))
    assert not [record for record in caplog.records if record.name == "placer"]
    after = runpy.run_path(str(script))
    decided = [record for record in caplog.records if record.name == "placer"]
    assert decided
    assert all("cpu" in vars(record)["figures"] for record in decided)
    assert len(after["losses"]) >= 3
    assert after["losses"] == before["losses"]


def test_a_typed_script_runs() -> None:
    """``make types`` reads the same script."""
    found = runpy.run_path(str(FOLDER.parent / "user_script.py"))
    assert found["placement"].device.type == found["whole"].device.type == "cpu"
    assert found["seconds"] > 0.0
