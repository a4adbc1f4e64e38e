"""Numbers as people read them: seconds in engineering units, bytes, ratios."""

from __future__ import annotations

_TIME_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
_BYTE_UNITS = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


def format_seconds(seconds: float) -> str:
    """Three significant digits: ``1.24 ms``, ``98.0 µs``, ``12.5 s``; ``0 s`` for nothing."""
    magnitude = abs(seconds)
    if magnitude < 5e-13:
        return "0 s"
    for scale, unit in _TIME_UNITS:
        # 0.9995 of a unit already prints as 1.00 of it.
        if magnitude >= 0.9995 * scale:
            return f"{three_digits(seconds / scale)} {unit}"
    return f"{three_digits(seconds / 1e-9)} ns"


def format_bytes(count: float) -> str:
    """Decimal units, as memory is sold: ``1.24 GB``; whole bytes below 1 kB."""
    for scale, unit in _BYTE_UNITS:
        if abs(count) >= 0.9995 * scale:
            return f"{three_digits(count / scale)} {unit}"
    return f"{count:.0f} B"


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
