"""Calibration survives a device that cannot be used, or breaks, and says why."""

from __future__ import annotations

import math
import re
import time
from pathlib import Path
from typing import Any

import pytest
from simulated.backend import Backend
from simulated.device import DEVICE, SimulatedDevice

from placer import profile
from placer.calibration import probing, runner
from placer.calibration.benchmarks.probe import Probe
from placer.calibration.measuring.bench import Bench
from placer.calibration.progress import Progress
from placer.calibration.runner import calibrate
from placer.errors import CalibrationError

TOO_OLD = "RuntimeError: The driver on your system is too old"


class Notes(Progress):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


def refuse(*_: Any, **__: Any) -> Any:
    raise RuntimeError("The driver on your system is too old\nsee the manual")


def test_a_device_that_cannot_be_used_is_left_out_with_the_reason(
    device: SimulatedDevice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SimulatedDevice, "touch", refuse)
    monkeypatch.setattr(runner, "QUICK_BUDGET", 1.0)
    monkeypatch.setattr(probing, "OVERTIME", math.inf)  # until there is enough to fit, however slow the machine
    shown, path = Notes(), tmp_path / "p.json"
    calibrate(devices=("cpu", "sim"), path=path, progress=shown, quick=True, clock=time.process_time)
    found = profile.load(path)
    assert found.devices() == ("cpu",)
    assert found.unusable == {"sim": TOO_OLD}
    assert f"sim cannot be used here and is left out: {TOO_OLD}" in found.warnings
    assert f"sim cannot be used here and is left out: {TOO_OLD}" in shown.notes
    assert found.complete


class Breaking:
    """Makes every launch fail once the device has measured ``limit`` probes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.limit = self.done = 0
        measure, launch = Bench.measure, SimulatedDevice.launch

        def counted(bench: Bench, probe: Probe, *, seconds: float) -> Any:
            found = measure(bench, probe, seconds=seconds)
            self.done += found is not None
            return found

        def failing(device: SimulatedDevice, seconds: float, op: str) -> None:
            if self.done >= self.limit:
                raise RuntimeError("CUDA error: an illegal memory access was encountered")
            launch(device, seconds, op)

        monkeypatch.setattr(Bench, "measure", counted)
        monkeypatch.setattr(SimulatedDevice, "launch", failing)


@pytest.fixture
def breaking(monkeypatch: pytest.MonkeyPatch) -> Breaking:
    return Breaking(monkeypatch)


ILLEGAL = "RuntimeError: CUDA error: an illegal memory access was encountered"


def test_a_device_that_breaks_ends_at_once_and_what_was_measured_is_kept(
    device: SimulatedDevice, tmp_path: Path, breaking: Breaking, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first time it breaks too early; the next run, in a process of its own as a rule, tries it again."""
    emptied: list[None] = []
    monkeypatch.setattr(Backend, "empty_cache", lambda self: emptied.append(None))
    used, path = device.memory.used, tmp_path / "p.json"
    breaking.limit = 2
    with pytest.raises(CalibrationError, match=r"too little was measured.*illegal"):
        calibrate(budget=1.0, devices=("sim",), path=path, progress=False, clock=DEVICE.clock)
    assert breaking.done == 2
    breaking.limit = 12
    found = calibrate(budget=1.0, devices=("sim",), path=path, progress=False, clock=DEVICE.clock)
    assert breaking.done == 12
    assert found.devices() == ("sim",)
    told = re.compile(rf"sim worked no more after (\d+) probes, which are kept: {ILLEGAL}")
    kept = [int(match[1]) for match in map(told.fullmatch, found.warnings) if match]
    assert len(kept) == 1
    assert kept[0] > 12  # the fixed networks are counted too
    assert found.unusable == {}
    assert emptied
    assert device.memory.used <= used
