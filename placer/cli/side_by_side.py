"""Several machine profiles as one data sheet: a row per rate, a column per profile."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from placer.explanation import new_table, plain
from placer.profile import DeviceFit, Profile
from placer.units import format_seconds, three_digits

#: What is compared of a device: its name in the table, the rate in the fit, and its unit (none: seconds).
_ROWS = (
    ("float32 products", "flops/float32", "FLOP/s"),
    ("bfloat16 products", "flops/bfloat16", "FLOP/s"),
    ("float16 products", "flops/float16", "FLOP/s"),
    ("memory", "bytes_per_second", "B/s"),
    ("smallest op", "dispatch_seconds", ""),
    ("launch delay", "launch_seconds", ""),
    ("wait when idle", "sync_seconds", ""),
    ("copy to device", "copy/h2d/pageable/bytes_per_second", "B/s"),
    ("  from pinned", "copy/h2d/pinned/bytes_per_second", "B/s"),
    ("copy to host", "copy/d2h/pageable/bytes_per_second", "B/s"),
    ("context, once", "context_seconds", ""),
)


def render(found: Sequence[Profile], *, width: int = 100, color: bool = False) -> str:
    """The profiles beside each other, one table per device; a dash where nothing was measured."""
    names = [Path(profile.name).stem or profile.name for profile in found]
    parts: list[object] = []
    for device in dict.fromkeys(name for profile in found for name in profile.devices()):
        fits = [profile.fit(device) if device in profile.devices() else None for profile in found]
        table = new_table(device, ["", *names])
        for words, rate, unit in _ROWS:
            cells = [_cell(fit, rate, unit) for fit in fits]
            if any(cell != "-" for cell in cells):
                table.add_row(words, *cells)
        if device == "cpu":
            table.add_row("threads", *("-" if fit is None else f"{fit.threads}" for fit in fits))
        parts.append(table)
    noise = new_table("noise of repeated steps", ["", *names])
    for words, key in (("median", "median_spread"), ("90th percentile", "p90_spread")):
        noise.add_row(words, *(f"{p.noise[key]:.1%}" if key in p.noise else "-" for p in found))
    parts.append(noise)
    return plain(parts, width=width, color=color)


def _cell(fit: DeviceFit | None, rate: str, unit: str) -> str:
    if fit is None or rate not in fit.rates:
        return "-"
    value = fit.rates[rate]
    if not unit:
        return format_seconds(value)
    for scale, prefix in ((1e12, "T"), (1e9, "G")):
        if value >= scale:
            return f"{three_digits(value / scale)} {prefix}{unit}"
    return f"{three_digits(value / 1e6)} M{unit}"
