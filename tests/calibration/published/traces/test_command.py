"""``python -m placer.calibration.published.traces`` without the collected traces."""

from __future__ import annotations

from pathlib import Path

import pytest

from placer.calibration.published.traces.__main__ import main


def test_it_says_what_it_takes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "usage: " in capsys.readouterr().err
    assert main(["--help"]) == 0
    assert "launched before" in capsys.readouterr().out


def test_a_bad_file_is_one_line_and_no_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "gone.json")]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert "export_chrome_trace" in captured.err
