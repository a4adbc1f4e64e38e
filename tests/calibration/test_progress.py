"""Lines where nobody watches, a bar on a terminal, nothing when asked for silence."""

from __future__ import annotations

import sys

import pytest

from placer.calibration.benchmarks import PROPOSERS
from placer.calibration.progress import WORDS, Progress, _Bar


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


def test_the_time_left_is_that_of_the_whole_calibration() -> None:
    now = [0.0]
    bar = _Bar(lambda: now[0])
    bar.begin(600.0)
    bar.start("first", 200.0)
    assert bar.left() == "10 min left"
    now[0] = 990.0
    assert bar.passed() == 200.0  # a stage that takes longer does not eat into the next
    bar.start("second", 380.0, done=320.0)
    assert bar.left() == "80 s left"
    bar.finish("fit", 12.0)  # an interrupt leaves only the fit
    assert bar.left() == "12 s left"


def test_every_family_of_probes_has_words() -> None:
    assert set(WORDS) == {"rates", *PROPOSERS}
