"""A report as text, in a pipe and on a terminal."""

from __future__ import annotations

import io

import pytest

from placer.calibration.validation.record import Cell, Report
from placer.calibration.validation.report import render


def hand_made() -> Report:
    cells = [
        Cell(
            "net", "mlp", batch, "train", device, 2, predicted=predicted, measured=seen, low=predicted * 0.8,
            high=predicted * 1.2, coverage=0.9, p10=seen, p90=seen, count=30, repeatability=1.02, flops=1e6 * batch,
        )
        for device, batch, predicted, seen in (
            ("cpu", 1, 1e-3, 1.1e-3), ("cpu", 64, 1e-2, 3e-2), ("cuda", 1, 5e-3, 4e-3), ("cuda", 64, 5e-3, 6e-3),
        )
    ]  # fmt: skip
    failed = Cell("net", "mlp", 4096, "train", "cuda", 2, error="OutOfMemoryError: no", prediction_error="unknown")
    return Report("2026-01-01", {"cpu": "x"}, "hand-made", (*cells, failed), {"gone": "not installed: y"})


def text_of(report: Report) -> str:
    stream = io.StringIO()
    render(report, stream)
    return stream.getvalue()


def test_report_text_in_a_pipe() -> None:
    shown = text_of(hand_made())
    assert "\x1b" not in shown
    assert "│" not in shown
    lines = shown.splitlines()
    header = lines.index("Prediction error by device") + 1
    assert lines[header].split("  ")[0] == "device"
    cpu = lines[header + 1].split()
    assert cpu[:2] == ["cpu", "2"]
    assert cpu[2] == "37.9"  # |1/1.1 - 1| = 9.1 %, |1/3 - 1| = 66.7 %
    assert "Decisions on the device over 2 scenarios" in shown
    assert "net, batch 4096, train on cuda with 2 threads  OutOfMemoryError: no" in shown
    assert "gone     not installed: y" in shown


def test_no_line_is_wider_than_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("COLUMNS", "70")
    stream = Terminal()
    render(hand_made(), stream)
    assert "Prediction error by device" in stream.getvalue()
    assert max(map(len, stream.getvalue().splitlines())) <= 70 < max(map(len, text_of(hand_made()).splitlines()))
