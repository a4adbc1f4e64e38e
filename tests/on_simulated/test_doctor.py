"""placer doctor where torch lists accelerators."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from simulated.device import SimulatedDevice

from placer.cli import main


def found() -> dict[str, Any]:
    result = CliRunner().invoke(main, ["doctor", "--format", "json"], prog_name="placer")
    assert result.exit_code == 0, result.output
    report: dict[str, Any] = json.loads(result.stdout)
    return report


def test_looking_creates_no_context(device: SimulatedDevice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLACER_HOME", str(tmp_path))
    report = found()
    assert [d["device"] for d in report["devices"]] == ["cpu", "sim"]
    assert {d["device"]: d["knowledge"] for d in report["devices"]} == {"cpu": "published", "sim": "convention"}
    text = " ".join(CliRunner().invoke(main, ["doctor"], prog_name="placer").stdout.split())
    assert " sim " in text
    assert "; not known: the default rule " in text
    assert device.contexts == 0
