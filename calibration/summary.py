"""What a calibration found, as lines a person can check against a data sheet."""

from __future__ import annotations

import math
import textwrap

from placer.pricing import Z90
from placer.profile import DeviceFit, Profile
from placer.units import format_seconds, three_digits

_WIDTH, _INDENT = 80, 18
_NO_BREAK = "\N{NO-BREAK SPACE}"
_DTYPES = ("float32", "bfloat16", "float16", "float64")


def render(profile: Profile) -> str:
    """The profile's peaks, overheads and noise, one line each, plain text."""
    lines = [f"calibrated in {profile.seconds:.0f} s, {len(profile.samples)} samples kept"]
    for fit in profile.fits:
        lines += ["", _title(fit), *_device_lines(fit)]
    median, high = profile.noise.get("median_spread"), profile.noise.get("p90_spread")
    if median is not None and high is not None:
        lines += ["", f"noise: repeated steps spread by {median:.1%} (median), {high:.1%} (90th percentile)"]
    left_out = profile.noise.get("left_out", 0.0)
    if left_out > 0.0:
        lines += [f"       {left_out:.1%} of the steps are left out: something else on the machine changed its pace"]
    lines += [f"warning: {warning}" for warning in profile.warnings]
    if not profile.complete:
        lines.append("not complete: run placer calibrate again to go on where it stopped")
    return "\n".join(lines)


def _title(fit: DeviceFit) -> str:
    if fit.device == "cpu":
        return f"cpu, {fit.threads} thread{'s' * (fit.threads > 1)}"
    return fit.device


def _device_lines(fit: DeviceFit) -> list[str]:
    rates = fit.rates
    peaks = [f"{dtype} {_giga(rates[f'flops/{dtype}'])}FLOP/s" for dtype in _DTYPES if f"flops/{dtype}" in rates]
    rows = [
        ("matrix products", ", ".join(peaks)),
        ("memory", f"{_giga(rates['bytes_per_second'])}B/s read and written by a large copy"),
        ("dispatch", f"{format_seconds(rates['dispatch_seconds'])} for the smallest op"),
    ]
    if "launch_seconds" in rates:
        issue, sync = rates.get("issue_seconds", 0.0), rates["sync_seconds"]
        start = format_seconds(rates["launch_seconds"])
        wait = f"{format_seconds(sync)} to wait for an idle device"
        rows.append(("launch", f"{format_seconds(issue)} to issue, {start} until it starts, {wait}"))
    for direction, words in (("h2d", "copy to device"), ("d2h", "copy to host")):
        for memory in ("pageable", "pinned"):
            prefix = f"copy/{direction}/{memory}"
            if f"{prefix}/bytes_per_second" in rates:
                per_tensor = format_seconds(rates[f"{prefix}/seconds_per_tensor"])
                rows.append(
                    (words, f"{_giga(rates[f'{prefix}/bytes_per_second'])}B/s {memory}, {per_tensor} per tensor")
                )
    own = {name: value for name, value in fit.framework.items() if value > 0 and not name.startswith("host")}
    if own:
        rows.append(("framework", ", ".join(f"{format_seconds(v)} per {n.replace('_', ' ')}" for n, v in own.items())))
    taken = sum(family.measured for family in fit.families.values())
    built_on = f", built on what {fit.reference} knows" if fit.reference else ""
    rows.append(("cost model", f"{len(fit.families)} op families fitted on {taken} samples{built_on}"))
    if "base" in fit.interval:
        error = math.expm1(fit.interval.get("held_out", fit.interval["base"] * Z90))
        rows.append(("certainty", f"a step is known within about {error:.0%} (90 % of steps)"))
    return [line for row in rows for line in _lines(*row)]


def _lines(name: str, text: str) -> list[str]:
    """A row within the width of a terminal, broken between its facts."""
    whole = ", ".join(fact.replace(" ", _NO_BREAK) for fact in text.split(", "))
    lines = textwrap.wrap(whole, _WIDTH - _INDENT, break_long_words=False, break_on_hyphens=False)
    first, *others = (line.replace(_NO_BREAK, " ") for line in lines)
    return [f"  {name:<{_INDENT - 2}}{first}", *(" " * _INDENT + line for line in others)]


def _giga(value: float) -> str:
    """A rate with a prefix: ``52.1 G``, ``1.24 T``."""
    if value >= 1e12:
        return f"{three_digits(value / 1e12)} T"
    if value >= 1e9:
        return f"{three_digits(value / 1e9)} G"
    return f"{three_digits(value / 1e6)} M"
