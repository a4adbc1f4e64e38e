"""What ``placer validate`` does: measures a suite, or replays a record, and prints the tables."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import torch

from placer import machine
from placer import profile as profiles
from placer.calibration.validation import record
from placer.calibration.validation.held_out import networks_of
from placer.calibration.validation.record import Report
from placer.calibration.validation.report import render
from placer.calibration.validation.run import SECONDS_PER_CELL, profile_of_record, replay, validate
from placer.calibration.validation.what_if_rows import what_if_tables
from placer.errors import CalibrationError
from placer.machine import MeasuredSpeeds
from placer.pricing import beside, named_profile, nearest_profile, on_other_cpu, small_step_seconds
from placer.printable import printable_text
from placer.profile import DeviceFit, Profile

#: Seconds spent measuring one cell on each visit, and times the whole suite is gone through: a machine that shares its
#: cores is another one some minutes later, and what is predicted is its usual self. The quick suite has to end within a
#: minute.
THOROUGH, QUICK = (SECONDS_PER_CELL, 3), (0.8, 1)


def main(
    suite: str | None = None, output: str | Path | None = None, against: str | Path | None = None,
    profile: Profile | str | Path | None = None, *, threads: Sequence[int] | None = None, estimate: bool = False,
    what_if: Sequence[str] | None = None,
) -> int:  # fmt: skip
    """Measure (or, with ``against``, replay a record) and print the tables.

    ``suite`` None is ``quick`` when measuring, and every cell of the record when replaying. ``threads`` are the numbers
    of CPU threads to run with (None: as the process has now) or, when replaying, those of the cells to keep. With
    ``estimate`` the CPU's predictions are those of before a calibration, from another class of CPU. ``what_if`` names
    GPUs of the catalog that the reference systems are priced on too (empty: those of ``what_if_rows``). Returns the
    exit code: 0, or 1 if not one cell has both a prediction and a measurement. Raises the errors of ``placer.errors``
    and ValueError for an argument that is not accepted.
    """
    check_what_if(what_if, suite, against)
    for name in what_if or ():
        profiles.find_gpu(name)  # refused before anything is measured
    written = None if output is None else Path(output)
    if against is not None:
        path = Path(against)
        past = record.load(path)
        chosen = _profile_of(past, path, profile, estimate)
        report = replay(_kept(past, suite, threads), chosen, progress=say)
        if written is not None:
            record.save(report, written)
    else:
        chosen = _profile(profile, estimate)
        stale = profiles.stale_fields(chosen, machine.fingerprint())
        if stale:
            say(f"warning: the profile is stale ({'; '.join(stale)}); run: placer calibrate")
        seconds, visits = QUICK if suite in (None, "quick") else THOROUGH
        report = validate(
            networks_of(suite or "quick"), chosen, _usable(chosen), threads=threads, progress=say,
            output=written, time_limit_per_cell=seconds, visits=visits,
        )  # fmt: skip
    tables = () if what_if is None else tuple(what_if_tables(report, chosen, what_if, say))
    render(report, sys.stdout, tables)
    return 0 if any(cell.predicted is not None and cell.measured is not None for cell in report.cells) else 1


def check_what_if(what_if: Sequence[str] | None, suite: str | None, against: str | Path | None) -> None:
    """Raise ValueError where GPUs are asked about, and no reference system would run."""
    if what_if is not None and against is None and suite not in ("reference", "full"):
        raise ValueError("--what-if prices the reference systems: give --suite reference, or a record with --against")


def say(text: str) -> None:
    """To stderr, at once."""
    print(printable_text(text), file=sys.stderr, flush=True)


def _profile_of(past: Report, path: Path, source: Profile | str | Path | None, estimate: bool) -> Profile:
    """The profile to predict a record with. A GPU of the catalog is driven by the CPU of the record's own profile.

    Raises ProfileError.
    """
    if estimate:
        return _profile(source, estimate)
    recorded = cache(partial(profile_of_record, past, path))
    found = recorded() if source is None else named_profile(source, recorded)
    if found.created:  # what was calibrated some day is taken as it is
        return found
    return replace(found, fits=(*(fit for fit in recorded().fits if fit.device == "cpu"), *found.fits))


def _profile(source: Profile | str | Path | None, estimate: bool) -> Profile:
    """The profile to predict with; ``estimate``: without its own class of machine. Raises ProfileError."""
    if estimate and source is None:
        return _from_another_class(None)
    chosen = source if isinstance(source, Profile) else profiles.load(source)
    return _from_another_class(chosen) if estimate else chosen


def _from_another_class(profile: Profile | None) -> Profile:
    """The estimate for a calibrated machine's CPU, or for this one's (None), from another class of machine.

    Of a calibrated machine the speed probe is what its calibration says of the same work. This one is probed, with the
    threads that the process has.
    """
    facts = machine.fingerprint() if profile is None else profile.fingerprint
    nearest = nearest_profile(facts, own_class=False)
    counts = (torch.get_num_threads(),) if profile is None else profile.threads("cpu")
    fits: list[DeviceFit] = []
    for threads in counts:
        if profile is None:
            probed = machine.measure_speeds()
        else:
            rates = profile.fit("cpu", threads).rates
            small = small_step_seconds(profile, threads)
            probed = MeasuredSpeeds(small, rates["flops/float32"], rates["bytes_per_second"])
        fits += on_other_cpu(nearest, beside(nearest, probed, threads), threads=threads).fits
    return replace(nearest, fits=tuple(fits), fingerprint=facts, name=f"estimate from {nearest.fingerprint['cpu']}")


def _kept(report: Report, suite: str | None, threads: Sequence[int] | None) -> Report:
    """The cells of a record that are of this suite and these numbers of threads; None keeps all."""
    names = {entry.name for entry in networks_of(suite)} if suite else None
    kept = [cell for cell in report.cells if names is None or cell.network in names]
    return replace(report, cells=tuple(cell for cell in kept if threads is None or cell.threads in threads))


def _usable(profile: Profile) -> tuple[str, ...]:
    """The devices that are here and calibrated."""
    here = machine.available_devices()
    both = tuple(device for device in here if device in profile.devices())
    if not both:
        raise CalibrationError(
            f"no device of this machine ({', '.join(here)}) is in the profile ({', '.join(profile.devices())}); "
            "run: placer calibrate"
        )
    return both
