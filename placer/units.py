"""Numbers as people read them: seconds in engineering units, bytes, ratios, dollars, joules."""

from __future__ import annotations

import math
import re

_TIME_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
_LONG_UNITS = ((86400.0, "days"), (3600.0, "h"), (60.0, "min"))
_DURATIONS = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_BYTE_UNITS = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
_JOULE_UNITS = ((3.6e6, "kWh"), (3.6e3, "Wh"), (1.0, "J"), (1e-3, "mJ"), (1e-6, "µJ"))


def _scaled(value: float, units: tuple[tuple[float, str], ...]) -> str:
    """Three digits in the largest of the ``units`` of which there is one, else in the last."""
    # 0.9995 of a unit already prints as 1.00 of it.
    scale, unit = next((row for row in units if abs(value) >= 0.9995 * row[0]), units[-1])
    return f"{three_digits(value / scale)} {unit}"


def format_seconds(seconds: float) -> str:
    """Three significant digits: ``1.24 ms``, ``98.0 µs``, ``12.5 s``; ``0 s`` for nothing."""
    return "0 s" if abs(seconds) < 5e-13 else _scaled(seconds, _TIME_UNITS)


def format_duration(seconds: float) -> str:
    """As ``format_seconds``, but from two minutes on in the largest unit of which there are two: ``2.50 h``."""
    for scale, unit in _LONG_UNITS:
        if seconds >= 2.0 * scale:
            return f"{three_digits(seconds / scale)} {unit}"
    return format_seconds(seconds)


def format_interval(low: float, high: float, within: float) -> str:
    """Two durations in the unit that a third one ``within`` them is shown in: ``1.20–1.50 ms``, ``0.98–1.20 min``."""
    unit = format_duration(within).partition(" ")[2]
    scale = next(scale for scale, name in (*_LONG_UNITS, *_TIME_UNITS) if name == unit)
    return f"{three_digits(low / scale)}–{three_digits(high / scale)} {unit}"


def format_part(part: float, whole: float) -> str:
    """A part of a time, both in the unit of the whole: ``1.10 of 1.50 ms``."""
    number, unit = format_seconds(whole).split(" ")
    scale = next((scale for scale, name in _TIME_UNITS if name == unit), 1.0)
    return f"{three_digits(part / scale)} of {number} {unit}"


def parse_duration(text: str) -> float:
    """Seconds of ``50ms``, ``90s``, ``3min``, ``2h`` or ``1.5d``. Raises ValueError for anything else, and for 0."""
    match = re.fullmatch(r"\s*(\d+\.?\d*|\.\d+)\s*([a-zµ]+)\s*", text, re.ASCII | re.IGNORECASE)
    unit = _DURATIONS.get(match[2].lower()) if match else None
    if match is None or unit is None or not 0.0 < float(match[1]) * unit < math.inf:
        raise ValueError(f"{text!r} is not a duration: a number and one of us, ms, s, min, h or d, like 50ms or 2h")
    return float(match[1]) * unit


def format_bytes(count: float) -> str:
    """Decimal units, as memory is sold: ``1.24 GB``; whole bytes below 1 kB."""
    return f"{count:.0f} B" if abs(count) < 999.5 else _scaled(count, _BYTE_UNITS)


def format_joules(joules: float) -> str:
    """``1.24 kWh``, ``12.5 Wh``, ``980 J``, ``1.20 mJ``."""
    return _scaled(joules, _JOULE_UNITS)


def format_dollars(dollars: float) -> str:
    """Cents from a dollar on, three significant digits below: ``$1,240``, ``$12.40``, ``$0.0312``; ``$1.2e-07``."""
    if dollars >= 1000.0:
        return f"${dollars:,.0f}"
    if dollars >= 1.0:
        return f"${dollars:.2f}"
    return f"${dollars:.3g}"


def format_count(count: int, noun: str) -> str:
    """``1 step``, ``1,000 steps``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def format_ratio(ratio: float) -> str:
    """How many times: ``1.24×``, ``12.4×``, ``1,240×``."""
    return f"{three_digits(ratio)}×"


def three_digits(value: float) -> str:
    """Three significant digits without an exponent, thousands separated."""
    magnitude = abs(value)
    if magnitude >= 99.95:
        return f"{value:,.0f}"
    if magnitude >= 9.995:
        return f"{value:.1f}"
    return f"{value:.2f}"
