"""Rehearses ``make gpu`` on the simulated accelerator, as ``make gpu-rehearsal`` does, and reads what it leaves."""

from __future__ import annotations

import json
import lzma
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from simulated import backend

from placer.calibration.measuring.journal import Journal
from placer.calibration.validation import record, recorded

SCRIPT = Path(__file__).parent / "simulated" / "rehearsal.py"


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.mark.skipif(not backend.supported(), reason="this torch takes no backend written in Python")
@pytest.mark.soak
@pytest.mark.timeout(600)
def test_a_run_on_a_simulated_accelerator_is_complete_and_can_be_replayed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(tmp_path)], capture_output=True, text=True, timeout=590, check=False
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    (folder,) = (tmp_path / "records").iterdir()
    log = read(folder / "run.jsonl")
    assert [line["of"]["part"] for line in log] == [
        "environment",
        "calibrating",
        "cells_on_device",
        "cells_on_cpu",
        "cells_in_bfloat16",
        "second_visit",
        "third_visit",
    ]
    assert [line["error"] for line in log if "error" in line] == []

    assert not list(folder.glob("profile*"))  # a record keeps what was observed
    monkeypatch.setenv("PLACER_HOME", str(tmp_path / "home"))
    found = recorded.fitted(folder / "calibration.journal.xz")
    assert "sim" in found.devices()
    unpacked = tmp_path / "unpacked.journal"
    unpacked.write_bytes(lzma.decompress((folder / "calibration.journal.xz").read_bytes()))
    journal = Journal(unpacked, found.fingerprint, existing=True)
    assert journal.timers["sim", 1] == "recorder"
    assert any(op.seconds for o in journal.of("sim", 1) for op in o.ops)
    cells = record.load(folder / "measurements.json").cells
    assert {(c.network, c.device) for c in cells} == {
        ("actor_critic", "sim"),
        ("actor_critic", "cpu"),
        ("mlp_tabular_bfloat16", "sim"),
        ("mlp_tabular_large_batch", "sim"),
    }
    assert all(cell.measured for cell in cells)
    assert {len(cell.visits) for cell in cells} == {3}
    assert all(cell.predicted for cell in cells if cell.device == "sim")
    assert "sim" in done.stdout  # the tables of the replay
    assert "Prediction error by device" in done.stdout
