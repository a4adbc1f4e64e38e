"""What a calibration found: a short data sheet for people, and every number for those who ask."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Iterator

from placer.pricing import Z90
from placer.pricing.framework import KERNELS
from placer.profile import Device, Profile
from placer.units import format_seconds, three_digits

_WIDTH, _INDENT = 80, 17
_NO_BREAK = "\N{NO-BREAK SPACE}"
_DTYPES = ("float32", "bfloat16", "float16", "float64")
#: Relative error above which a certainty is shown as a factor.
LARGE_ERROR = 0.5
Row = tuple[str, str]


def render(profile: Profile, *, everything: bool = False) -> str:
    """The data sheet as plain text of 80 columns, without a newline at its end.

    It has each device at its usual number of threads. With ``everything`` it has all numbers of threads, and all that
    was fitted.
    """
    catalog = [fit.gpu for fit in profile.fits if _from_catalog(fit)]
    lines = [
        f"not calibrated: what the catalog knows of {', '.join(catalog)}"
        if catalog
        else f"calibrated in {profile.seconds:.0f} s"
    ]
    fits = profile.fits if everything else tuple(profile.fit(device) for device in profile.devices())
    for fit in fits:
        rows = [*_sheet(fit), *(_details(fit) if everything else ())]
        lines += ["", _title(fit, profile)]
        for name, text in rows:
            lines += _lines(name, text)
    lines += [""]
    for note in _notes(profile, everything):
        lines += textwrap.wrap(note, _WIDTH, subsequent_indent="  ", break_on_hyphens=False)
    if not everything:
        lines.append("for every number: placer profile show --all")
    return "\n".join(lines).rstrip()


def _from_catalog(fit: Device) -> bool:
    """Whether nothing was measured: all that prices ops is what is known of the GPU."""
    return bool(fit.gpu) and not fit.families


def _title(fit: Device, profile: Profile) -> str:
    if fit.device == "cpu":
        return f"cpu, {fit.threads} thread{'s' * (fit.threads > 1)}"
    known = {item.get("device"): item.get("name") for item in profile.fingerprint.get("accelerators") or ()}
    name = known.get(fit.device) or fit.device
    return fit.device if name == fit.device else f"{fit.device}, {name}"


def _sheet(fit: Device) -> Iterator[Row]:
    rates = fit.rates
    yield "arithmetic", _arithmetic(fit)
    yield "memory", f"{_giga(rates['bytes_per_second'])}B/s, read and written"
    if "launch_seconds" in rates:
        issue, start, wait = (format_seconds(rates.get(f"{name}_seconds", 0.0)) for name in ("issue", "launch", "sync"))
        yield "launch", f"{issue} to issue, starts {start} later, {wait} to wait for it"
        copies = [_copy(fit, direction, words) for direction, words in (("h2d", "to device"), ("d2h", "to host"))]
        if any(copies):
            yield "copies", ", ".join(filter(None, copies))
    else:
        yield "smallest op", format_seconds(rates["dispatch_seconds"])
    if "base" in fit.interval and not _from_catalog(fit):
        yield "certainty", _certainty(fit)


def _arithmetic(fit: Device) -> str:
    """The rate of large matrix products by dtype; the unit stands once where it is the same."""
    peaks = {dtype: _giga(fit.rates[f"flops/{dtype}"]) for dtype in _DTYPES if f"flops/{dtype}" in fit.rates}
    prefixes = {peak[-1] for peak in peaks.values()}
    if len(prefixes) == 1:
        return ", ".join(f"{dtype} {peak[:-2]}" for dtype, peak in peaks.items()) + f" {prefixes.pop()}FLOP/s"
    return ", ".join(f"{dtype} {peak}FLOP/s" for dtype, peak in peaks.items())


def _copy(fit: Device, direction: str, words: str) -> str:
    pageable, pinned = (fit.rates.get(f"copy/{direction}/{m}/bytes_per_second") for m in ("pageable", "pinned"))
    if pageable is None:
        return ""
    return f"{_giga(pageable)}B/s {words}" + (f" ({_giga(pinned)}B/s from pinned memory)" if pinned else "")


def _certainty(fit: Device) -> str:
    """How far nine of ten predicted steps are off at the most, as measured on steps that were left out of the fit."""
    error = math.expm1(fit.interval.get("held_out", fit.interval["base"] * Z90))
    within = f"{error:.0%}" if error <= LARGE_ERROR else f"a factor of {1.0 + error:.1f}"
    return f"9 of 10 steps take within {within} of what is predicted"


def _details(fit: Device) -> Iterator[Row]:
    """Every number by its name, in seconds, bytes and FLOPs."""
    if fit.cores is not None:
        region, thread = map(format_seconds, (fit.cores.region_seconds, fit.cores.thread_seconds))
        made = f"{thread} for a thread that is made anew"
        yield "many cores", f"{region} to start a loop, {made}, pace {fit.cores.pace:.2f}"
    else:
        built_on = f", built on what {fit.reference} knows" if fit.reference else ""
        taken = sum(family.measured for family in fit.families.values())
        yield "cost model", f"{len(fit.families)} op families adapted by {taken:,} samples{built_on}"
        yield from _column("samples", [f"{family.measured:>7,} of {name}" for name, family in fit.families.items()])
    yield from _column("rates", [f"{value:<9.4g} {name}" for name, value in fit.rates.items()])
    costs = {name: value for name, value in fit.framework.items() if value > 0 and not name.startswith(KERNELS)}
    yield from _column(
        "framework", [f"{format_seconds(value):>7} per {name.replace('_', ' ')}" for name, value in costs.items()]
    )
    yield from _column("interval", [f"{value:<9.3g} {name}" for name, value in fit.interval.items()])


def _column(title: str, texts: Iterable[str]) -> Iterator[Row]:
    for number, text in enumerate(texts):
        yield "" if number else title, text


def _notes(profile: Profile, everything: bool) -> Iterator[str]:
    """What a reader should know of this calibration, and what to do about it."""
    median, high = profile.noise.get("median_spread"), profile.noise.get("p90_spread")
    if everything and median is not None and high is not None:
        yield f"noise: repeated steps spread by {median:.1%} (median), {high:.1%} (90th percentile)"
    yield from (f"warning: {warning}" for warning in profile.warnings)
    if not profile.complete:
        yield "not complete: run placer calibrate again to go on where it stopped"


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
