"""Lines where nobody watches, a bar on a terminal, nothing when asked for silence."""

from __future__ import annotations

import sys

import pytest

from placer.calibration.progress import Progress


def drive(progress: Progress) -> None:
    with progress.showing():
        progress.begin(60.0)
        progress.start("measuring cpu, 2 threads", 20.0)
        progress.update(5.0, "matmul")
        progress.note("cuda: \x1b[2J\nfake")
        progress.start("measuring cuda", 28.0, done=12.4)
        progress.finish("fitting the cost model", 12.0)


def test_lines_go_to_stderr_and_a_note_cannot_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    drive(Progress.on_terminal())
    assert capsys.readouterr() == (
        "",
        (
            "placer: measuring cpu, 2 threads: 20 s\nplacer: cuda: \ufffd[2J\ufffdfake\n"
            "placer: measuring cuda: 28 s, 12 s of them done before\nplacer: fitting the cost model: 12 s\n"
        ),
    )
    drive(Progress())
    assert capsys.readouterr() == ("", "")


def test_a_bar_on_a_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    drive(Progress.on_terminal())
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "cuda: \ufffd[2J\ufffdfake" in shown.err
    assert "fitting the cost model" in shown.err
