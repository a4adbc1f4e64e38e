from __future__ import annotations

import pytest

from placer.units import format_bytes, format_ratio, format_seconds


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 s"),
        (1.5e-9, "1.50 ns"),
        (9.8e-5, "98.0 µs"),
        (0.00123456, "1.23 ms"),
        (0.01234, "12.3 ms"),
        (0.1234, "123 ms"),
        (0.9996, "1.00 s"),
        (0.00099996, "1.00 ms"),
        (9.999, "10.0 s"),
        (99.96, "100 s"),
        (12345.6, "12,346 s"),
        (-0.002, "-2.00 ms"),
    ],
)
def test_seconds_have_three_digits_and_an_engineering_unit(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text


def test_bytes_are_decimal() -> None:
    assert [format_bytes(n) for n in (0, 999, 1000, 12_100_000_000)] == ["0 B", "999 B", "1.00 kB", "12.1 GB"]


def test_ratio() -> None:
    assert [format_ratio(r) for r in (1.0, 12.345, 1234.5)] == ["1.00×", "12.3×", "1,234×"]
