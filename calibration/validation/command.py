"""What ``placer validate`` does: measures a suite, or replays a record, and prints the tables."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TextIO, cast

from placer import machine
from placer import profile as profiles
from placer.calibration.suite import SUITES, entries
from placer.calibration.validation import record
from placer.calibration.validation.day_one import without_own_class
from placer.calibration.validation.record import Report
from placer.calibration.validation.replaying import Progress, profile_of_record, replay
from placer.calibration.validation.report import render
from placer.calibration.validation.run import SECONDS_PER_CELL, validate
from placer.calibration.validation.what_if_rows import what_if_tables
from placer.errors import CalibrationError
from placer.profile import Profile

#: Times the whole suite is gone through: a machine that shares its cores is another one some minutes later, and what is
#: predicted is its usual self. The quick suite, which has to end within a minute, is gone through once.
VISITS, QUICK_VISITS = 3, 1
#: Seconds spent measuring one cell of the quick suite.
QUICK_SECONDS_PER_CELL = 0.8


def main(
    suite: str | None = None,
    output: str | Path | None = None,
    against: str | Path | None = None,
    profile: Profile | str | Path | None = None,
    devices: Sequence[str] | None = None,
    *,
    threads: Sequence[int] | None = None,
    time_limit_per_cell: float | None = None,
    progress: bool = True,
    stream: TextIO | None = None,
    estimate: bool = False,
    what_if: Sequence[str] | None = None,
) -> int:
    """Measure (or, with ``against``, replay a record) and print the tables.

    ``suite`` None is ``quick`` when measuring, and every cell of the record when replaying. ``devices`` None are those
    that are both here and calibrated; when replaying, those of the record. ``threads`` are the numbers of CPU threads
    to run with (None: as the process has now) or, when replaying, those of the cells to keep. With ``estimate`` the
    CPU's predictions are those of before a calibration (see ``day_one``). ``what_if`` names GPUs of the catalog that
    the reference systems are priced on too (empty: those of ``what_if_rows``). Returns the exit code: 0, or 1 if not
    one cell has both a prediction and a measurement. Raises the errors of ``placer.errors`` and ValueError for an
    argument that is not accepted.
    """
    if suite is not None and suite not in SUITES:
        raise ValueError(f"unknown suite {suite!r}: one of {', '.join(SUITES)} is accepted")
    for name in what_if or ():
        profiles.find_gpu(name)  # refused before anything is measured
    if what_if is not None and against is None and suite not in ("reference", "full"):
        raise ValueError("--what-if prices the reference systems: give --suite reference, or a record with --against")
    path = None if against is None else _record_path(against)
    past = None if path is None else record.load(path)
    if profile is None and not estimate and past is not None and path is not None:
        profile = profile_of_record(past, path)
    chosen = _profile(profile, estimate)
    say: Progress = partial(print, file=sys.stderr, flush=True) if progress else (lambda _: None)
    written = None if output is None else Path(output)
    if past is not None:
        report = replay(_kept(past, suite, devices, threads), chosen, progress=say)
        if written is not None:
            record.save(report, written)
    else:
        stale = profiles.stale_fields(chosen, machine.fingerprint())
        if stale:
            say(f"warning: the profile is stale ({'; '.join(stale)}); run: placer calibrate")
        quick = suite in (None, "quick")
        report = validate(
            entries(cast(Any, suite or "quick")),
            chosen,
            _usable(chosen, devices),
            threads=threads,
            progress=say,
            output=written,
            time_limit_per_cell=time_limit_per_cell or (QUICK_SECONDS_PER_CELL if quick else SECONDS_PER_CELL),
            visits=QUICK_VISITS if quick else VISITS,
        )
    beside = () if what_if is None else tuple(what_if_tables(report, chosen, what_if, say))
    render(report, stream or sys.stdout, beside)
    return 0 if any(cell.predicted is not None and cell.measured is not None for cell in report.cells) else 1


def _profile(source: Profile | str | Path | None, estimate: bool) -> Profile:
    if estimate and source is None:
        return without_own_class(None)
    chosen = source if isinstance(source, Profile) else profiles.load(source)
    return without_own_class(chosen) if estimate else chosen


def _kept(
    report: Report, suite: str | None, devices: Sequence[str] | None, threads: Sequence[int] | None
) -> Report:
    """The cells of a record that are of this suite, these devices and numbers of threads; None keeps all."""
    names = {entry.name for entry in entries(cast(Any, suite))} if suite else None
    kept = [cell for cell in report.cells if names is None or cell.network in names]
    kept = [cell for cell in kept if devices is None or cell.device in devices]
    kept = [cell for cell in kept if threads is None or cell.threads in threads]
    return replace(report, cells=tuple(kept))


def _usable(profile: Profile, devices: Sequence[str] | None) -> tuple[str, ...]:
    """The devices asked for, checked; or all that are here and calibrated."""
    here = machine.available_devices()
    if devices is None:
        both = tuple(device for device in here if device in profile.devices())
        if not both:
            raise CalibrationError(
                f"no device of this machine ({', '.join(here)}) is in the profile ({', '.join(profile.devices())}); "
                "run: placer calibrate"
            )
        return both
    wanted = tuple(machine.normal_device(device) for device in devices)
    for device in wanted:
        if device not in here:
            raise CalibrationError(f"device {device!r} is not on this machine; there is: {', '.join(here)}")
    return wanted


def _record_path(against: str | Path) -> Path:
    """A file, or the name of a record that comes with placer."""
    path = Path(against)
    shipped = Path(__file__).parents[1] / "records" / f"{path.name}.json"
    return shipped if not path.exists() and path.name == str(against) and shipped.exists() else path
