"""Calibration under load, twice, and beside what hangs."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from placer import profile as profiles
from placer.calibration.lab.suite import entries
from placer.calibration.runner import calibrate
from placer.calibration.validation.cells import build_model, cell_workload, cells_of
from placer.calibration.validation.run import validate
from placer.decision.decision import decide
from placer.errors import TraceError
from placer.pricing.predict import predict
from placer.profile.profile import Device, Profile
from placer.tracing import trace
from placer.tracing.trace_data import Trace

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1800)]
#: Seconds of a calibration here; a quarter of it when only tried.
BUDGET = 60.0
#: How much slower than the accelerator made by hand those are that decisions are taken beside.
SLOWER = (1.0, 4.0, 16.0)


def test_calibrating_with_all_cores_busy(tmp_path: Path, share: float, note: Callable[[str, str], None]) -> None:
    budget = max(BUDGET * share, 15.0)
    loop = "while True: sum(range(10000))"
    busy = [subprocess.Popen([sys.executable, "-c", loop]) for _ in range(os.cpu_count() or 1)]
    try:
        found = calibrate(budget=budget, path=tmp_path / "busy.json", progress=False)
    finally:
        for process in busy:
            process.kill()
            process.wait()
    marked = [warning for warning in found.warnings if "is shared" in warning]
    # As it was written: the samples' digits, the name.
    report = validate(
        entries("quick"), profiles.load(tmp_path / "busy.json"), ["cpu"], time_limit_per_cell=max(0.8 * share, 0.05)
    )
    cells = [c for c in report.cells if c.measured and c.predicted and c.low and c.high]
    within = sum(c.low <= c.measured <= c.high for c in cells if c.low and c.measured and c.high) / len(cells)
    assert within >= 0.8, f"{within:.0%} within"
    note("busy", f"{within:.0%} of {len(cells)} steps within the interval; marked: {marked[0] if marked else 'no'}")


def test_two_calibrations_agree(
    tmp_path: Path, share: float, handmade_profile: Profile, note: Callable[[str, str], None]
) -> None:
    """Decisions between this CPU, calibrated twice, and accelerators whose costs are set by hand."""
    budget = max(BUDGET * share, 15.0)
    both = [calibrate(budget=budget, path=tmp_path / f"{name}.json", progress=False) for name in ("first", "second")]
    accelerator = next(fit for fit in handmade_profile.fits if fit.device == "cuda")
    same = total = on_cpu = 0
    for step in steps_of("full" if share == 1.0 else "quick"):
        for factor in SLOWER:
            slowed = slower(accelerator, factor)
            first, second = (chosen(step, replace(found, fits=(*found.fits, slowed))) for found in both)
            total += 1
            same += first == second
            on_cpu += first == "cpu"
    # Where one device always wins, agreement would mean nothing.
    assert 0.2 * total <= on_cpu <= 0.8 * total
    if share == 1.0:
        assert same >= 0.95 * total
    note("twice", f"{same} of {total} decisions equal; {on_cpu} of them for the CPU")


def chosen(step: Trace, profile: Profile) -> str:
    return decide(predict(step, profile, devices=("cpu", "cuda")), None).device


def slower(fit: Device, factor: float) -> Device:
    """A device on which everything takes ``factor`` times as long."""
    rates = {
        k: v / factor if k.startswith("flops/") or k.endswith("bytes_per_second") else v * factor
        for k, v in fit.rates.items()
    }
    return replace(fit, rates=rates, framework={k: v * factor for k, v in fit.framework.items()})


def steps_of(suite: str) -> Iterator[Trace]:
    """The steps of every network of a suite that is installed and can be traced: the set that is decided on."""
    for entry in entries(suite):
        if entry.missing():
            continue
        model = build_model(entry)
        for cell in cells_of(entry, [("cpu", torch.get_num_threads())]):
            with contextlib.suppress(TraceError):  # steps that have to run, and are too long for that
                yield trace(cell_workload(entry, model, cell, "host"))
