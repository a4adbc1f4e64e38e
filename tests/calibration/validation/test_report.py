"""A report as text, in a pipe and on a terminal."""

from __future__ import annotations

import io

import pytest

from placer.calibration.validation.record import Cell, Report
from placer.calibration.validation.report import render


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def text_of(report: Report, stream: io.StringIO | None = None) -> str:
    stream = stream or io.StringIO()
    render(report, stream)
    return stream.getvalue()


def test_a_report_has_errors_decisions_and_all_that_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    cells = [
        Cell(
            "net",
            "mlp",
            batch,
            "train",
            device,
            2,
            predicted=predicted,
            measured=seen,
            low=predicted * 0.8,
            high=predicted * 1.2,
            coverage=0.9,
            p10=seen,
            p90=seen,
            count=30,
            repeatability=1.02,
            flops=1e6 * batch,
        )
        for device, batch, predicted, seen in (
            ("cpu", 1, 1e-3, 1.1e-3),
            ("cpu", 64, 1e-2, 3e-2),
            ("cuda", 1, 5e-3, 4e-3),
            ("cuda", 64, 5e-3, 6e-3),
        )
    ]
    failed = Cell("net", "mlp", 4096, "train", "cuda", 2, error="OutOfMemoryError: no", prediction_error="unknown")
    report = Report("2026-01-01", {"cpu": "x"}, "hand-made", (*cells, failed), {"gone": "not installed: y"})
    shown = text_of(report)
    lines = shown.splitlines()
    header = lines.index("Prediction error by device") + 1
    assert lines[header + 1].split()[:3] == ["cpu", "2", "37.9"]  # |1/1.1 - 1| = 9.1 %, |1/3 - 1| = 66.7 %
    assert "Decisions on the device over 2 scenarios" in shown
    assert "net, batch 4096, train on cuda with 2 threads  OutOfMemoryError: no" in shown
    assert "gone     not installed: y" in shown
    monkeypatch.setenv("COLUMNS", "70")
    narrow = text_of(report, Terminal())
    assert max(map(len, narrow.splitlines())) <= 70 < max(map(len, lines))
