"""What ``placer validate`` does: it predicts real networks, then measures them; or replays a record of that.

Every network is predicted before it is measured. Cells of one network are measured in turns. A network that fails, or
that cannot be predicted, stays in the record with the reason.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import torch

from placer import machine
from placer.calibration.measuring.op_record import REGION
from placer.calibration.measuring.timing import Clock
from placer.calibration.suite import Entry, accelerator_entries, entries
from placer.calibration.validation import record, recorded
from placer.calibration.validation.cells import Effort, cells_of, measured_cells, predicted_cells, unpredicted
from placer.calibration.validation.held_out import held_out_entries, networks_of
from placer.calibration.validation.record import Cell, Report
from placer.calibration.validation.reference import what_if_tables
from placer.calibration.validation.report import render
from placer.calibration.validation.scores import group_by
from placer.errors import CalibrationError, ProfileMissing
from placer.machine import MeasuredSpeeds
from placer.pricing import beside, cpu_from_speeds, named_profile, nearest_profile, small_step_seconds
from placer.printable import printable_text
from placer.profile import Device, Profile, find_gpu, kind_of, load, shipped, stale_fields, uncalibrated
from placer.units import format_seconds
from placer.workload import same_randomness

#: Takes a line on what is being done.
Progress = Callable[[str], None]
#: Seconds spent measuring one cell on each visit, unless three of its steps take longer.
SECONDS_PER_CELL = 0.5
#: The times that a whole suite is gone through: a machine that shares its cores is another one some minutes later, and
#: what is predicted is its usual self. Nobody can tell a prediction's error from the machine's own without them.
VISITS = 3
#: Seconds of a cell on a visit, where the suite has to end within a minute.
QUICK_SECONDS_PER_CELL = 0.2


def main(
    suite: str | None = None,
    output: str | Path | None = None,
    against: str | Path | None = None,
    profile: Profile | str | Path | None = None,
    *,
    threads: Sequence[int] | None = None,
    estimate: bool = False,
    what_if: Sequence[str] | None = None,
) -> int:
    """Measure (or, with ``against``, replay a record) and print the tables.

    ``against`` is a record's file, or the folder that has it as ``measurements.json``. ``suite`` None is ``quick`` when
    measuring, and every cell of the record when replaying. ``threads`` are the numbers of CPU threads to run with
    (None: as the process has now) or, when replaying, those of the cells to keep. With ``estimate`` the CPU's
    predictions are those of before a calibration, from another class of CPU: of the machine of ``profile``, else of the
    record's, else of this one. ``what_if`` names GPUs of the catalog that the reference systems are priced on too
    (empty: those of ``what_if_tables``). Returns the exit code: 0, or 1 if not one cell has both a prediction and a
    measurement. Raises the errors of ``placer.errors`` and ValueError for an argument that is not accepted.
    """
    check_what_if(what_if, suite, against)
    for name in what_if or ():
        find_gpu(name)  # refused before anything is measured
    written = None if output is None else Path(output)
    if against is not None:
        path = recorded.measurements_of(Path(against))
        past = record.load(path)
        if estimate:
            chosen = estimate_for(profile_of_record(past, path) if profile is None else profile)
        else:
            chosen = profile_for(past, path, profile)
        report = replay(_kept(past, suite, threads), chosen, progress=say)
        if written is not None:
            record.save(report, written)
    else:
        chosen = estimate_for(profile) if estimate else _loaded(profile)
        stale = stale_fields(chosen, machine.fingerprint())
        if stale:
            say(f"warning: the profile is stale ({'; '.join(stale)}); run: placer calibrate")
        seconds = QUICK_SECONDS_PER_CELL if suite in (None, "quick") else SECONDS_PER_CELL
        report = validate(
            networks_of(suite or "quick"),
            chosen,
            _usable(chosen),
            threads=threads,
            progress=say,
            output=written,
            time_limit_per_cell=seconds,
            visits=VISITS,
        )
    tables = () if what_if is None else tuple(what_if_tables(report, chosen, what_if, say))
    render(report, sys.stdout, tables)
    return 0 if any(cell.predicted is not None and cell.measured is not None for cell in report.cells) else 1


def check_what_if(what_if: Sequence[str] | None, suite: str | None, against: str | Path | None) -> None:
    """Raise ValueError where GPUs are asked about, and no reference system would run."""
    if what_if is not None and against is None and suite not in ("reference", "full"):
        raise ValueError("--what-if predicts the reference systems: give --suite reference, or a record with --against")


def say(text: str) -> None:
    """To stderr, at once."""
    print(printable_text(text), file=sys.stderr, flush=True)


def _loaded(source: Profile | str | Path | None) -> Profile:
    return source if isinstance(source, Profile) else load(source)


def profile_for(past: Report, path: Path, source: Profile | str | Path | None) -> Profile:
    """The profile to predict a record with. A GPU of the catalog is driven by the CPU of the record's own profile.

    ``source`` may be the journal of a calibration, too. Raises ProfileError, CalibrationError.
    """
    if source is None:
        return profile_of_record(past, path)
    if recorded.is_journal(source):
        return recorded.fitted(Path(str(source)))
    found = named_profile(source, lambda: profile_of_record(past, path))
    if found.created:  # what was calibrated some day is taken as it is
        return found
    host = [fit for fit in profile_of_record(past, path).fits if fit.device == "cpu"]
    return replace(found, fits=(*host, *found.fits))


def profile_of_record(report: Report, path: Path) -> Profile:
    """The profile to predict a record with where none is named: the one it names, if it lies beside it in a file.

    Else what is fitted to the journal beside it; else the shipped one it names; else this machine's. Where there is
    none, the shipped one of the class of CPU nearest to the record's. Raises ProfileError where a profile cannot be
    read, CalibrationError where a journal cannot be fitted.
    """
    name = report.profile.rpartition(" of ")[0]
    kept = recorded.kept_profile(path.parent, name)
    if kept is not None and profile_title(kept) == report.profile:
        return kept
    own = recorded.own_fit(path.parent)
    if own is not None:
        return own
    if name in shipped():
        return load(name)
    try:
        return load(None)
    except ProfileMissing:
        return nearest_profile(report.fingerprint)


def profile_title(profile: Profile) -> str:
    """Which profile this is: two calibrations never share it. Records travel, so a file goes without its folders."""
    return f"{Path(profile.name).name.removesuffix(recorded.PACKED) or 'in memory'} of {profile.created}"


def estimate_for(source: Profile | str | Path | None) -> Profile:
    """The estimate for a calibrated machine's CPU, or for this one's (None), from another class of machine.

    Of a calibrated machine the speed probe is what its calibration says of the same work. This one is probed, with the
    threads that the process has. Raises ProfileError, and CalibrationError for a machine of which one core is not
    known.
    """
    profile = None if source is None else _loaded(source)
    facts = machine.fingerprint() if profile is None else profile.fingerprint
    nearest = nearest_profile(facts, own_class=False)
    fits: list[Device] = []
    for threads in (torch.get_num_threads(),) if profile is None else profile.threads("cpu"):
        probed = machine.measure_speeds() if profile is None else _speeds_of(profile, threads)
        fits.append(cpu_from_speeds(nearest, kind_of(facts), beside(nearest, probed, threads), threads))
    return uncalibrated(fits, facts, f"estimate from {nearest.fingerprint['cpu']}")


def _speeds_of(profile: Profile, threads: int) -> MeasuredSpeeds:
    """What the speed probe would find on a calibrated machine, by its calibration.

    Raises CalibrationError where that has not measured one core.
    """
    measured = {
        fit.threads
        for fit in profile.fits
        if fit.device == "cpu" and (fit.cores or any(family.measured for family in fit.families.values()))
    }
    if 1 not in measured:
        there = ", ".join(map(str, sorted(measured))) or "no"
        raise CalibrationError(
            f"--estimate needs the speed of one core, and {profile_title(profile)} has the CPU with {there} threads "
            "only: run placer calibrate --device cpu --output FILE on that machine, and give --profile FILE"
        )
    rates, core = (profile.fit("cpu", count).rates for count in (threads, 1))
    return MeasuredSpeeds(
        threads=threads,
        small_step_seconds=small_step_seconds(profile, threads),
        flops_per_second=rates["flops/float32"],
        bytes_per_second=rates["bytes_per_second"],
        core_flops_per_second=core["flops/float32"],
        core_bytes_per_second=core["bytes_per_second"],
        region_seconds=REGION if threads > 1 else 0.0,
    )


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


def replay(report: Report, profile: Profile, *, progress: Progress = lambda _: None) -> Report:
    """The same measurements beside the predictions of ``profile``; nothing is run."""
    known = entries_of(report.cells)
    fresh: list[Cell] = []
    for network, cells in group_by(report.cells, lambda cell: cell.network).items():
        progress(f"{network}: {len(cells)} cells")
        entry = known.get(network)
        if entry is None:
            fresh += [unpredicted(cell, "no longer in the suite") for cell in cells]
        elif missing := entry.missing():
            fresh += [unpredicted(cell, f"not installed: {', '.join(missing)}") for cell in cells]
        else:
            fresh += predicted_cells(entry, cells, profile)
    return replace(report, cells=tuple(fresh), profile=profile_title(profile))


def entries_of(cells: Sequence[Cell]) -> dict[str, Entry]:
    """Every network of the suites by its name, those held out among them where a cell is of one."""
    known = {entry.name: entry for entry in (*entries("full"), *accelerator_entries())}
    if any(cell.network not in known for cell in cells):  # they take a second to draw
        known |= {entry.name: entry for entry in held_out_entries()}
    return known


def validate(
    networks: Sequence[Entry],
    profile: Profile,
    devices: Sequence[str],
    *,
    threads: Sequence[int] | None = None,
    progress: Progress = lambda _: None,
    clock: Clock = time.perf_counter,
    output: Path | None = None,
    rounds: int = 5,
    time_limit_per_cell: float = SECONDS_PER_CELL,
    visits: int = 1,
    first_visit: int = 0,
    deadline: float = math.inf,
    isolated: bool = True,
) -> Report:
    """Predict and measure every cell: network x batch x mode x device x number of CPU threads.

    ``threads`` is the CPU thread counts to run with (None: as the process has now); they are restored at the end. With
    ``output`` the record is written after every network, and a run that finds the record of an earlier one there only
    measures what is not in it; cells that failed are tried again. Predictions always come from ``profile``, and are
    made before anything is measured. The suite is gone through until every cell has so many ``visits``, beginning with
    ``first_visit``, counted from 0: only cells with that many are visited then. No network is begun once ``clock()``
    has passed ``deadline``: the next run goes on. ``isolated``: the baseline of ops timed alone is measured too.

    Raises CalibrationError if ``output`` was measured on another machine, or cannot be read or written.
    """
    before = torch.get_num_threads()
    places = [(device, count) for device in devices for count in threads or (before,)]
    effort = Effort(rounds, time_limit_per_cell, clock, isolated)
    report = _resumed(output, profile)
    of = len(networks)
    try:
        with same_randomness(devices):
            for visit in range(first_visit, visits):
                for number, entry in enumerate(networks, 1):
                    if clock() >= deadline:
                        progress(f"out of time: {of - number + 1} networks are left for the next run")
                        break
                    if missing := entry.missing():
                        reason = f"not installed: {', '.join(missing)}"
                        if entry.name not in report.skipped:  # once, not in every round
                            progress(f"{number}/{of} {entry.name}: skipped, {reason}")
                        report = replace(report, skipped={**report.skipped, entry.name: reason})
                        continue
                    due = _due(report, cells_of(entry, places), visit)
                    if not due:
                        continue
                    progress(f"{number}/{of} {entry.name}: {len(due)} cells" + f", round {visit + 1}" * bool(visit))
                    if not all(cell.visits for cell in due):
                        due = predicted_cells(entry, due, profile)
                    for device, count in places:
                        here = [cell for cell in due if (cell.device, cell.threads) == (device, count)]
                        report = report.with_cells(_measured(entry, here, effort, progress))
                    if output is not None:
                        record.save(report, output)
    finally:
        torch.set_num_threads(before)
    if output is not None:
        record.save(report, output)
    return report


def _due(report: Report, cells: Sequence[Cell], visit: int) -> list[Cell]:
    """Those of a network's cells that are to be measured on a visit, counted from 0, with what is known of them."""
    known = {cell.key: cell for cell in report.cells}
    cells = [known.get(cell.key, cell) for cell in cells]
    # On the first visit, cells that failed in an earlier run are tried again; later ones only add to others.
    return [cell for cell in cells if len(cell.visits) <= visit and (visit == 0 or cell.visits)]


def _measured(entry: Entry, cells: Sequence[Cell], effort: Effort, progress: Progress) -> list[Cell]:
    """The cells of a network at one place, measured once more."""
    if not cells:
        return []
    torch.set_num_threads(cells[0].threads)
    found = measured_cells(entry, cells, cells[0].device, effort)
    for cell in found:
        foretold = "not predicted" if cell.predicted is None else f"predicted {format_seconds(cell.predicted)}"
        seen = "failed" if cell.measured is None else f"measured {format_seconds(cell.measured)}"
        progress(f"  {cell.title}: {foretold}, {seen}")
    return found


def _resumed(output: Path | None, profile: Profile) -> Report:
    """What an earlier run left at ``output``, beside predictions of this profile; an empty report where there is none.

    Raises CalibrationError if that was measured on another machine, or cannot be read.
    """
    here = machine.fingerprint()
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    fresh = Report(created=now, fingerprint=here, profile=profile_title(profile))
    if output is None or not output.exists():
        return fresh
    found = record.load(output)
    # How many threads the process has does not matter: every cell says its own.
    changed = machine.differences({**found.fingerprint, "threads": here["threads"]}, here, ())
    if changed:
        raise CalibrationError(
            f"{output} was measured on another machine or set-up ({'; '.join(changed)}); give another --output"
        )
    # A network may have been skipped for a package that is installed by now.
    found = replace(found, skipped={})
    return found if found.profile == fresh.profile else replay(found, profile)
