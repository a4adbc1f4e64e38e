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

from placer import machine, profile
from placer.cli import doctor, main
from placer.cli.doctor import render
from placer.profile import Profile

Run = Callable[..., Result]

CUDA = {
    "device": "cuda", "name": "NVIDIA A100-SXM4-40GB", "memory_bytes": 42 * 10**9, "driver": "580.65",
    "compute_capability": "8.0",
}  # fmt: skip


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PLACER_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture(autouse=True)
def no_accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "describe_accelerators", list)


@pytest.fixture
def a100(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with a GPU that torch lists and nobody has calibrated."""
    monkeypatch.setattr(machine, "describe_accelerators", lambda: [dict(CUDA)])
    monkeypatch.setattr(machine, "known_free_memory", lambda _: None)


def report(run: Run, *arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run("doctor", "--format", "json", *arguments).stdout)
    return found


def test_a_machine_that_was_never_calibrated(run: Run, home: Path) -> None:
    text = run("doctor").stdout
    assert "there is none" in text
    assert text.endswith("Next\n- placer calibrate\n")
    assert max(map(len, text.splitlines())) <= 100
    assert "\x1b" not in text
    found = report(run)
    assert found["schema"] == 1
    assert found["profile"]["state"] == "missing"
    assert found["profile"]["path"] == str(profile.default_path())
    assert found["broken"] == []
    (cpu,) = found["devices"]
    assert (cpu["device"], cpu["knowledge"], cpu["usable"]) == ("cpu", "published", None)
    assert set(found["fingerprint"]) == set(machine.fingerprint())


def test_a_calibrated_machine_misses_nothing(run: Run, calibrated: Profile) -> None:
    found = report(run)
    assert found["profile"]["state"] == "usable"
    assert found["devices"][0]["knowledge"] == "calibrated"
    assert found["next"] == []
    text = run("doctor").stdout
    assert "calibrated\n" in text
    assert "- nothing is missing" in text


def test_a_machine_that_changed(run: Run, calibrated: Profile) -> None:
    old = dataclasses.replace(calibrated, fingerprint={**calibrated.fingerprint, "torch": "1.0"})
    profile.save(old)
    found = report(run)
    assert found["profile"]["state"] == "stale"
    assert found["profile"]["stale"][0].startswith("torch: 1.0 -> ")
    assert found["devices"][0]["knowledge"] == "published"
    assert found["next"] == ["placer calibrate"]
    text = run("doctor").stdout
    assert "its calibration is stale" in text
    assert "torch: 1.0 -> " in text


def test_a_profile_that_cannot_be_read_is_broken(home: Path, runner: CliRunner) -> None:
    path = profile.default_path()
    path.parent.mkdir(parents=True)
    path.write_text("{}")
    result = runner.invoke(main, ["doctor"], prog_name="placer")
    assert result.exit_code == 1
    assert "cannot be used" in result.stdout
    assert "Broken" in result.stdout
    assert result.stderr.startswith("placer: ")
    assert len(result.stderr.splitlines()) == 1


def test_a_folder_without_permission_is_broken(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor.os, "access", lambda *_: False)  # root may write everywhere
    (broken,) = doctor.diagnose()["broken"]
    assert "set PLACER_HOME" in broken


def test_torch_that_does_not_load_is_broken(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    def fails() -> None:
        raise OSError("libcudart.so.13: cannot open shared object file")

    monkeypatch.setattr(doctor, "_torch", fails)
    found = doctor.diagnose()
    assert found["torch"] is None
    assert found["broken"] == ["torch cannot be imported: OSError: libcudart.so.13: cannot open shared object file"]
    assert "libcudart" in render(found)


def test_a_gpu_that_nobody_calibrated(run: Run, calibrated: Profile, a100: None) -> None:
    profile.save(dataclasses.replace(calibrated, fits=tuple(f for f in calibrated.fits if f.device == "cpu")))
    gpu = report(run)["devices"][1]
    assert (gpu["device"], gpu["usable"], gpu["knowledge"]) == ("cuda", None, "published")
    assert gpu["catalog"].startswith("published (")
    text = run("doctor").stdout
    assert "NVIDIA A100-SXM4-40GB (8.0): 42.0 GB of memory" in text


def test_a_gpu_that_calibration_could_not_use(run: Run, calibrated: Profile, a100: None) -> None:
    reason = "RuntimeError: CUDA error: no kernel image is available for execution on the device"
    profile.save(dataclasses.replace(
        calibrated, unusable={"cuda": reason}, fingerprint={**calibrated.fingerprint, "accelerators": [CUDA]}
    ))  # fmt: skip
    found = report(run)
    gpu = found["devices"][1]
    assert (gpu["usable"], gpu["reason"]) == (False, reason)
    assert found["broken"] == []
    assert any("to use cuda: see the reason above" in line for line in found["next"])
    assert "placer calibrate" not in found["next"]
    assert f"cannot be used: {reason}" in " ".join(run("doctor").stdout.split())


@pytest.mark.parametrize(("driver", "reason", "remedy"), [
    ("11.8", "an old one", "update its driver, or install a torch for an older CUDA"),
    ("13.0", "no kernel, whatever the driver", "install a torch that is built for its compute capability"),
])  # fmt: skip
def test_versions_say_what_helps_and_no_word_of_the_reason(
    run: Run, calibrated: Profile, a100: None, monkeypatch: pytest.MonkeyPatch, driver: str, reason: str, remedy: str
) -> None:
    profile.save(dataclasses.replace(calibrated, fits=tuple(f for f in calibrated.fits if f.device == "cpu")))
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(machine, "unsupported", lambda _: reason)
    monkeypatch.setattr(machine, "describe_driver", lambda: {"driver": "1", "cuda": driver, "gpus": []})
    assert any(f"to use cuda: {remedy};" in line for line in report(run)["next"])


@pytest.mark.parametrize(("built_for", "advice"), [
    (None, "install a build of torch for CUDA"), ("13.0", "CUDA_VISIBLE_DEVICES may hide it"),
])  # fmt: skip
def test_a_gpu_that_only_the_driver_sees(
    run: Run, home: Path, monkeypatch: pytest.MonkeyPatch, built_for: str | None, advice: str
) -> None:
    monkeypatch.setattr(torch.version, "cuda", built_for)
    monkeypatch.setattr(torch.version, "hip", None)
    seen = {"driver": "580.65", "cuda": "13.0", "gpus": [{"name": "Tesla T4", "memory_bytes": 0,
                                                         "compute_capability": "7.5"}]}  # fmt: skip
    monkeypatch.setattr(machine, "describe_driver", lambda: seen)
    found = report(run)
    assert found["nvml"] == seen
    assert any(advice in line for line in found["next"])
    assert "NVIDIA 580.65, up to CUDA 13.0; NVML sees Tesla T4" in run("doctor").stdout


def test_names_cannot_steer_the_terminal(run: Run, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "\x1b[2J")
    assert "\x1b" not in run("doctor").stdout
