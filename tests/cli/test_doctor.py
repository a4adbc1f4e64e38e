"""placer doctor without an accelerator, and on machines that are made up."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner, Result

import placer
from placer import machine, profile
from placer.calibration.build import disturbance
from placer.cli import doctor, main
from placer.profile import Profile

Run = Callable[..., Result]

CUDA = {
    "device": "cuda", "name": "NVIDIA A100-SXM4-40GB", "memory_bytes": 42 * 10**9, "driver": "580.65",
    "compute_capability": "8.0",
}  # fmt: skip


@pytest.fixture(autouse=True)
def no_accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "describe_accelerators", list)


def report(run: Run) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run("doctor", "--format", "json").stdout)
    return found


def test_a_machine_that_was_never_calibrated(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "\x1b[2J")
    text = run("doctor").stdout
    assert "\nnext\n- placer calibrate\n" in text
    assert max(map(len, text.splitlines())) <= 100
    assert len(text.splitlines()) <= 24  # one screen
    assert "\x1b" not in text
    found = report(run)
    assert (found["schema"], found["broken"]) == (1, [])
    assert found["profile"] == {"state": "missing", "path": str(profile.default_path()), "writable": True}
    assert set(found["torch"]) == {"version", "cuda", "hip", "cudnn", "profiler", "threads"}
    (cpu,) = found["devices"]
    assert cpu.keys() >= {"free_bytes", "utilization", "calibrated_as"}
    assert (cpu["device"], cpu["knowledge"], cpu["usable"]) == ("cpu", "published", None)
    assert set(found["fingerprint"]) == set(machine.fingerprint())


def test_a_calibrated_machine_and_one_that_changed(
    run: Run, calibrated: Profile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The text holds what a bug report needs, and no personal path."""
    found = report(run)
    assert (found["profile"]["state"], found["devices"][0]["knowledge"]) == ("usable", "calibrated")
    assert found["next"] == []
    monkeypatch.setattr(doctor.Path, "home", lambda: tmp_path)
    monkeypatch.setenv("PLACER_HOME", str(tmp_path / "of mine"))
    monkeypatch.setattr(machine, "describe_accelerators", lambda: [dict(CUDA)])
    profile.save(dataclasses.replace(calibrated, fingerprint={**calibrated.fingerprint, "torch": "1.0"}))
    found = report(run)
    assert (found["profile"]["state"], found["devices"][0]["knowledge"]) == ("stale", "published")
    assert found["next"] == ["placer calibrate"]
    text = " ".join(run("doctor").stdout.split())
    assert str(tmp_path) not in text
    for fact in (
        f"placer {placer.__version__}, Python",
        f"torch {torch.__version__},",
        f"cpu {machine.cpu_model()}, ",
        "cuda NVIDIA A100-SXM4-40GB, 42.0 GB, compute capability 8.0, driver 580.65; published",
        "profile stale, of ",
        "torch: 1.0 -> ",
        "PLACER_HOME=~/of mine",
    ):
        assert fact in text


@pytest.mark.parametrize(("share", "following"), [(0.1, []), (0.5, ["placer calibrate, when the machine is quieter"])])
def test_a_calibration_beside_other_programs(share: float, following: list[str], run: Run, calibrated: Profile) -> None:
    assert [report(run)["profile"][key] for key in ("others_share", "disturbed")] == [None, False]
    noise = {"median_spread": 0.2, profile.OTHERS: share}
    profile.save(dataclasses.replace(calibrated, noise=noise, warnings=disturbance(noise)))
    found = report(run)
    assert (found["profile"]["others_share"], found["next"]) == (share, following)
    text = " ".join(run("doctor").stdout.split())
    assert ("other programs had 50% of the cores meanwhile (repeated steps spread by 20%" in text) == bool(following)


def test_what_is_broken_is_an_error(runner: CliRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    path = profile.default_path()
    path.parent.mkdir(parents=True)
    path.write_text("{}")
    result = runner.invoke(main, ["doctor"], prog_name="placer")  # what it found is on stdout all the same
    assert (result.exit_code, "broken\n-" in result.stdout) == (1, True)
    assert result.stderr.startswith("placer: ")
    assert len(result.stderr.splitlines()) == 1
    path.unlink()
    monkeypatch.setattr(doctor.os, "access", lambda *_: False)  # root may write everywhere
    (broken,) = doctor.diagnose()["broken"]
    assert "set PLACER_HOME" in broken


def test_a_gpu_that_nobody_calibrated_and_one_that_cannot_be_used(
    run: Run, calibrated: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "describe_accelerators", lambda: [dict(CUDA)])
    profile.save(dataclasses.replace(calibrated, fits=calibrated.fits[:1]))
    gpu = report(run)["devices"][1]
    assert (gpu["device"], gpu["usable"], gpu["knowledge"]) == ("cuda", None, "published")
    reason = "RuntimeError: CUDA error: no kernel image is available for execution on the device"
    facts = {**calibrated.fingerprint, "accelerators": [CUDA]}
    profile.save(dataclasses.replace(calibrated, unusable={"cuda": reason}, fingerprint=facts))
    found = report(run)
    assert [found["devices"][1][key] for key in ("usable", "reason")] == [False, reason]
    assert (found["broken"], found["next"]) == ([], [f"cuda cannot be used: {reason}"])
