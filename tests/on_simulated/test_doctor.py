"""placer doctor where torch lists accelerators."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from simulated.device import Device
from simulated.entry_point import environment

from placer.cli import main, trial
from placer.profile import Profile, save

REFUSED = "no kernel image is available for execution on the device"


def found() -> dict[str, Any]:
    result = CliRunner().invoke(main, ["doctor", "--format", "json"], prog_name="placer")
    assert result.exit_code == 0, result.output
    report: dict[str, Any] = json.loads(result.stdout)
    return report


def test_looking_creates_no_context(device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLACER_HOME", str(tmp_path))
    report = found()
    assert [d["device"] for d in report["devices"]] == ["cpu", "sim"]
    assert {d["device"]: d["knowledge"] for d in report["devices"]} == {"cpu": "published", "sim": "convention"}
    assert report["next"][-1].startswith("placer doctor --try")
    assert device.contexts == 0


def test_a_calibrated_accelerator(
    device: Device, with_cpu: Profile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLACER_HOME", str(tmp_path))
    save(with_cpu)
    report = found()
    assert [d["knowledge"] for d in report["devices"]] == ["calibrated"] * 2
    assert report["devices"][1]["calibrated_as"] == "sim"
    assert device.contexts == 0


def test_of_several_devices_each_is_tried_and_one_may_be_unusable(tmp_path: Path) -> None:
    devices = ({}, {"no_kernel": REFUSED})
    env = {**environment(tmp_path, *devices), "PLACER_HOME": str(tmp_path / "home")}
    tried = ("--try", "--device", "sim", "--device", "sim:1")
    command = [sys.executable, "-m", "placer", "doctor", *tried, "--format", "json"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert [(d["device"], d["usable"]) for d in report["devices"]] == [("cpu", None), ("sim", True), ("sim:1", False)]
    assert report["devices"][1]["tried"]["ops_seen"] == trial.CHAIN
    assert REFUSED in report["devices"][2]["reason"]
    assert report["broken"] == []
    assert any("to use sim:1" in line for line in report["next"])
