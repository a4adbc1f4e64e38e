"""Lines where nobody watches, a bar on a terminal, nothing when asked for silence."""

from __future__ import annotations

import sys

import pytest

from placer.calibration.progress import Progress, silent


def drive(progress: Progress) -> None:
    with progress:
        progress.start("cpu, 2 threads", 20.0, done=0.0)
        progress.stage("cpu, 2 threads: rates")
        progress.update(5.0, "matmul 3x3")
        progress.start("cuda", 30.0, done=12.4)
        progress.note("one remark")


def test_lines_go_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    drive(Progress.on_terminal())
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.splitlines() == [
        "placer: measuring cpu, 2 threads for 20 s",
        "placer: cpu, 2 threads: rates",
        "placer: measuring cuda for 30 s, 12 s of them done before",
        "placer: one remark",
    ]


def test_silence(capsys: pytest.CaptureFixture[str]) -> None:
    drive(silent())
    assert capsys.readouterr() == ("", "")


def test_a_bar_on_a_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    drive(Progress.on_terminal())
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "placer: one remark" in shown.err
    assert "rates" in shown.err
