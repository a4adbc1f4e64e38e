"""Cells by label and in bands."""

from __future__ import annotations

from placer.calibration.validation.grouping import batch_band, group_by, time_band

from .made_up import cell


def test_bands() -> None:
    assert [batch_band(cell("a", "cpu", 1, 1, batch=n)) for n in (1, 2, 127, 128, 1024)] == [
        "1", "2-15", "16-127", "128-1,023", "1,024 and more",
    ]  # fmt: skip
    assert [time_band(cell("a", "cpu", 1, t)) for t in (0.0005, 0.001, 0.05, 0.5, 2.0, None)] == [
        "below 1 ms", "1-10 ms", "10-100 ms", "0.1-1 s", "1 s and more", "not measured",
    ]  # fmt: skip
    groups = group_by([cell("a", "cpu", 1, 1), cell("a", "cuda", 1, 1), cell("b", "cpu", 1, 1)], lambda c: c.device)
    assert {name: len(cells) for name, cells in groups.items()} == {"cpu": 2, "cuda": 1}
