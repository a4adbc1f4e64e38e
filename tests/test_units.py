from __future__ import annotations

import pytest

from placer.units import format_bytes, format_interval, format_ratio, format_seconds, parse_duration


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 s"),
        (1.5e-9, "1.50 ns"),
        (9.8e-5, "98.0 µs"),
        (0.00123456, "1.23 ms"),
        (0.1234, "123 ms"),
        (0.9996, "1.00 s"),
        (0.00099996, "1.00 ms"),
        (9.999, "10.0 s"),
        (12345.6, "12,346 s"),
        (-0.002, "-2.00 ms"),
    ],
)
def test_seconds_have_three_digits_and_an_engineering_unit(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text


def test_bytes_are_decimal_and_ratios_have_three_digits() -> None:
    assert [format_bytes(n) for n in (0, 999, 1000, 12_100_000_000)] == ["0 B", "999 B", "1.00 kB", "12.1 GB"]
    assert [format_ratio(r) for r in (1.0, 12.345, 1234.5)] == ["1.00×", "12.3×", "1,234×"]


@pytest.mark.parametrize(
    ("low", "high", "within", "text"),
    [
        (1.2e-3, 1.5e-3, 1.3e-3, "1.20–1.50 ms"),
        (9.8e-4, 1.2e-3, 1.1e-3, "0.98–1.20 ms"),
        (99.0, 162.0, 130.0, "1.65–2.70 min"),
        (2760.0, 8100.0, 4740.0, "46.0–135 min"),
        (90.0, 130.0, 110.0, "90.0–130 s"),
    ],
)
def test_an_interval_is_in_the_unit_of_what_it_is_of(low: float, high: float, within: float, text: str) -> None:
    assert format_interval(low, high, within) == text


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("50ms", 0.05),
        ("250us", 250e-6),
        ("250µs", 250e-6),
        ("90s", 90.0),
        ("3min", 180.0),
        ("2h", 7200.0),
        (" 1.5 D ", 129600.0),
        (".5s", 0.5),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "5", "ms", "-1s", "0s", "1m", "1e3s", "2 h 3 min", "1" * 400 + "s"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration: a number and one of us, ms, s, min, h or d"):
        parse_duration(text)
