"""Parts run one after another, whatever becomes of those before."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from ended import ended

from placer.calibration.gpu_run import command
from placer.calibration.gpu_run.job import Job
from placer.calibration.gpu_run.lines import read
from placer.calibration.gpu_run.parts import Part

PARTS = (Part("failures", 1.0, ""), Part("choose_cost", 1.0, ""))


def job(folder: Path, seconds: float) -> Job:
    return Job(folder, "cpu", time.perf_counter() + seconds, only=("none",))


def run_with(monkeypatch: pytest.MonkeyPatch, folder: Path, script: str) -> None:
    """Let a shell script stand for the process of a part."""
    program = folder / "part"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setattr(command, "sys", SimpleNamespace(executable=str(program)))
    monkeypatch.setattr(command, "STARTING", 0.2)
    monkeypatch.setattr(command, "GRACE", 0.2)


def test_a_part_that_fails_is_written_down_with_the_reason_and_the_next_one_runs(tmp_path: Path) -> None:
    assert not command.run_parts(job(tmp_path, 60.0), PARTS)
    failed, ran = read(tmp_path / "run.jsonl")
    assert "profile.journal is no journal" in failed["error"]
    assert ran["of"] == {"part": "choose_cost"}
    assert ran["seconds"] > 0.0


def test_a_part_that_hangs_is_ended_with_what_it_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_with(monkeypatch, tmp_path, f"sleep 1000 & echo $! > {tmp_path}/started; wait")
    monkeypatch.setattr(command, "seconds_of", lambda *_: 0.6)
    assert not command.run_parts(job(tmp_path, 60.0), PARTS[:1])
    (line,) = read(tmp_path / "run.jsonl")
    assert "it was ended after" in line["error"]
    assert ended(int((tmp_path / "started").read_text()))


def test_the_run_ends_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_with(monkeypatch, tmp_path, "exec sleep 1000")
    monkeypatch.setattr(command, "seconds_of", lambda position, left, parts: left - 0.1)
    assert not command.run_parts(job(tmp_path, 0.5), PARTS)
    first, second = (line["error"] for line in read(tmp_path / "run.jsonl"))
    assert "it was ended after" in first
    assert second == "no time was left"


def test_without_an_accelerator_it_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command.machine, "accelerators", tuple)
    assert command.main(["--folder", str(tmp_path)]) == 1
    assert "torch sees no accelerator here" in capsys.readouterr().err
    monkeypatch.setattr(command.machine, "accelerators", lambda: ("cuda",))
    assert command.main(["--folder", str(tmp_path), "--device", "cuda:1"]) == 1
    assert "there is no cuda:1 here: there is cuda" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
