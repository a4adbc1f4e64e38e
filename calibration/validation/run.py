"""What ``placer validate`` does: it predicts real networks, then measures them; or replays a record of that.

Every network is predicted before it is measured. Cells of one network are measured in turns. A network that fails, or
that cannot be predicted, stays in the record with the reason.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from operator import attrgetter
from pathlib import Path

import torch

from placer import machine
from placer.calibration.measuring.timing import Clock
from placer.calibration.suite import QUICK, Entry
from placer.calibration.validation import record, recorded, sharing
from placer.calibration.validation.cells import (
    Effort,
    cells_of,
    measured_cells,
    priced_cells,
    traced_network,
    unpredicted,
)
from placer.calibration.validation.compare import group_by
from placer.calibration.validation.record import Cell, Report
from placer.calibration.validation.report import render
from placer.calibration.validation.table import Table
from placer.errors import CalibrationError, PlacerError, ProfileMissing
from placer.pricing import named_profile, nearest_profile
from placer.printable import printable_text
from placer.profile import Profile, load, shipped, stale_fields
from placer.units import format_seconds
from placer.workload import same_randomness

#: Takes a line on what is being done.
Progress = Callable[[str], None]
#: Seconds spent measuring one cell on each visit, unless three of its steps take longer; less where the suite has to
#: end within a minute.
SECONDS_PER_CELL, QUICK_SECONDS_PER_CELL = 0.5, 0.2
#: The times that a whole suite is gone through: a machine that shares its cores is another one some minutes later, and
#: what is predicted is its usual self. Nobody can tell a prediction's error from the machine's own without them.
VISITS = 3


def main(
    suite: str | None = None,
    output: str | Path | None = None,
    against: str | Path | None = None,
    profile: Profile | str | None = None,
    threads: Sequence[int] | None = None,
    share: str | None = None,
) -> int:
    """Measure the quick suite (or, with ``against``, replay a record) and print the tables.

    ``against`` is a record's file, or the folder that has it as ``measurements.json``. ``threads`` are the numbers of
    CPU threads to run with (None: as the process has now) or, when replaying, those of the cells to keep. ``share``
    names the file of a record to share ("": the usual name). Returns the exit code (``shown``). Raises the errors of
    ``placer.errors``, for a suite that only a checkout has too.
    """
    if suite not in (None, "quick"):
        raise PlacerError(
            f"the suite {suite!r} is in the repository, not in the package: install a checkout of it with "
            "pip install --editable, or give --suite quick"
        )
    networks = {entry.name: entry for entry in QUICK}
    if against is None:
        chosen = loaded(profile)
        target = share_target(share, None, chosen)
        report = measure(QUICK, chosen, threads, output, QUICK_SECONDS_PER_CELL)
        return shown(report, chosen, target)
    path = recorded.measurements_of(Path(against))
    past = selected(record.load(path), networks if suite else None, threads)
    chosen = profile_for(past, path, profile)
    target = share_target(share, past, chosen)
    report = replay(past, chosen, networks, progress=say)
    if output is not None:
        record.save(report, Path(output))
    return shown(report, chosen, target)


def share_target(name: str | None, past: Report | None, profile: Profile) -> Path | None:
    """The file to share a record in: of an earlier one, or of a run on this machine. None where nobody asked.

    Raises PlacerError, as ``sharing.target_of``.
    """
    if name is None:
        return None
    if past is None:
        return sharing.target_of(name, machine.fingerprint(), now(), profile)
    return sharing.target_of(name, past.fingerprint, past.created, profile)


def shown(report: Report, profile: Profile, share: Path | None = None, first: Sequence[Table | str] = ()) -> int:
    """Print the report, which ``profile`` predicted, after the tables of ``first``, and ``share`` it; the exit code.

    That is 0, or 1 if not one cell has both a prediction and a measurement.
    """
    render(report, sys.stdout, first)
    if share is not None:
        sharing.share(report, profile, share, sys.stdout)
    return 0 if any(cell.predicted is not None and cell.measured is not None for cell in report.cells) else 1


def loaded(profile: Profile | str | Path | None) -> Profile:
    """A profile that may be named; None: this machine's. Raises ProfileError."""
    return profile if isinstance(profile, Profile) else load(profile)


def say(text: str) -> None:
    """To stderr, at once."""
    print(printable_text(text), file=sys.stderr, flush=True)


def measure(
    networks: Sequence[Entry],
    profile: Profile,
    threads: Sequence[int] | None,
    output: str | Path | None,
    seconds: float,
    others: Sequence[Entry] = (),
) -> Report:
    """Predict and measure these networks on every device that is here and calibrated, several times.

    ``seconds`` of each cell on each visit. ``others`` are networks that a record at ``output`` may have, too. Raises
    CalibrationError where there is no such device.
    """
    stale = stale_fields(profile, machine.fingerprint())
    if stale:
        say(f"warning: the profile is stale ({'; '.join(stale)}); run: placer calibrate")
    here = machine.available_devices()
    devices = tuple(device for device in here if device in profile.devices())
    if not devices:
        raise CalibrationError(
            f"no device of this machine ({', '.join(here)}) is in the profile ({', '.join(profile.devices())}); "
            "run: placer calibrate"
        )
    return validate(
        networks,
        profile,
        devices,
        threads=threads,
        progress=say,
        output=None if output is None else Path(output),
        time_limit_per_cell=seconds,
        visits=VISITS,
        others=others,
    )


def profile_for(past: Report, path: Path, source: Profile | str | Path | None) -> Profile:
    """The profile to predict a record with. A GPU of the catalog is driven by the CPU of the record's own profile.

    ``source`` may be the journal of a calibration, too. Raises ProfileError, CalibrationError.
    """
    if source is None:
        return profile_of_record(past, path)
    if recorded.is_journal(source):
        return recorded.fitted(Path(str(source)))
    named = named_profile(source, lambda: profile_of_record(past, path))
    if named.created:  # what was calibrated some day is taken as it is
        return named
    host = [fit for fit in profile_of_record(past, path).fits if fit.device == "cpu"]
    return replace(named, fits=(*host, *named.fits))


def profile_of_record(report: Report, path: Path) -> Profile:
    """The profile to predict a record with where none is named: the calibration that a shared record holds.

    Else the profile it names, if it lies beside it in a file; else what is fitted to the journal beside it; else the
    shipped one it names; else this machine's. Where there is none, the shipped one of the class of CPU nearest to the
    record's. Raises ProfileError where a profile cannot be read, CalibrationError where a journal cannot be fitted or
    the shared calibration is damaged.
    """
    shared = sharing.calibration_of(report, path)
    if shared is not None:
        return shared
    name = report.profile.rpartition(" of ")[0]
    beside = recorded.kept_profile(path.parent, name)
    if beside is not None and profile_title(beside) == report.profile:
        return beside
    fitted = recorded.own_fit(path.parent)
    if fitted is not None:
        return fitted
    if name in shipped():
        return load(name)
    try:
        return load(None)
    except ProfileMissing:
        return nearest_profile(report.fingerprint)


def profile_title(profile: Profile) -> str:
    """Which profile this is: two calibrations never share it. Records travel, so a file goes without its folders."""
    return f"{Path(profile.name).name.removesuffix(recorded.PACKED) or 'in memory'} of {profile.created}"


def selected(report: Report, names: Container[str] | None, threads: Sequence[int] | None) -> Report:
    """The cells of a record that are of these networks and these numbers of threads; None keeps all."""
    cells = [cell for cell in report.cells if names is None or cell.network in names]
    return replace(report, cells=tuple(cell for cell in cells if threads is None or cell.threads in threads))


def now() -> str:
    """This moment in UTC, to the second, by ISO 8601."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def silent(line: str) -> None:
    """Say nothing of what is being done."""


def replay(report: Report, profile: Profile, networks: Mapping[str, Entry], *, progress: Progress = silent) -> Report:
    """The same measurements beside the predictions of ``profile``; nothing is run. ``networks``: all there are."""
    fresh: list[Cell] = []
    for network, cells in group_by(report.cells, attrgetter("network")).items():
        progress(f"{network}: {len(cells)} cells")
        entry = networks.get(network)
        if entry is None:
            fresh += [unpredicted(cell, "no network of this name is among those asked for") for cell in cells]
        elif missing := entry.missing():
            fresh += [unpredicted(cell, f"not installed: {', '.join(missing)}") for cell in cells]
        else:
            fresh += priced_cells(cells, traced_network(entry, cells), profile)
    return replace(report, cells=tuple(fresh), profile=profile_title(profile), calibration=None)


def validate(
    networks: Sequence[Entry],
    profile: Profile,
    devices: Sequence[str],
    *,
    threads: Sequence[int] | None = None,
    progress: Progress = silent,
    clock: Clock = time.perf_counter,
    output: Path | None = None,
    rounds: int = 5,
    time_limit_per_cell: float = SECONDS_PER_CELL,
    visits: int = 1,
    first_visit: int = 0,
    deadline: float = math.inf,
    others: Sequence[Entry] = (),
) -> Report:
    """Predict and measure every cell: network x batch x mode x device x number of CPU threads.

    ``threads`` is the CPU thread counts to run with (None: as the process has now); they are restored at the end. With
    ``output`` the record is written after every network, and a run that finds the record of an earlier one there only
    measures what is not in it; cells that failed are tried again. Predictions always come from ``profile``, and are
    made before anything is measured. The suite is gone through until every cell has so many ``visits``, beginning with
    ``first_visit``, counted from 0: only cells with that many are visited then. No network is begun once ``clock()``
    has passed ``deadline``: the next run goes on. ``others`` are networks that the earlier record may have, too.

    Raises CalibrationError if ``output`` was measured on another machine, or cannot be read or written.
    """
    before = torch.get_num_threads()
    places = [(device, count) for device in devices for count in threads or (before,)]
    effort = Effort(rounds, time_limit_per_cell, clock)
    report = _resumed(output, profile, [*networks, *others])
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
                        due = priced_cells(due, traced_network(entry, due), profile)
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
    measured = measured_cells(entry, cells, cells[0].device, effort)
    for cell in measured:
        foretold = "not predicted" if cell.predicted is None else f"predicted {format_seconds(cell.predicted)}"
        took = "failed" if cell.measured is None else f"measured {format_seconds(cell.measured)}"
        progress(f"  {cell.title}: {foretold}, {took}")
    return measured


def _resumed(output: Path | None, profile: Profile, networks: Sequence[Entry]) -> Report:
    """What an earlier run left at ``output``, beside predictions of this profile; an empty report where there is none.

    Raises CalibrationError if that was measured on another machine, or cannot be read.
    """
    here = machine.fingerprint()
    fresh = Report(created=now(), fingerprint=here, profile=profile_title(profile))
    if output is None or not output.exists():
        return fresh
    earlier = record.load(output)
    # How many threads the process has does not matter: every cell says its own.
    changed = machine.differences({**earlier.fingerprint, "threads": here["threads"]}, here, ())
    if changed:
        raise CalibrationError(
            f"{output} was measured on another machine or set-up ({'; '.join(changed)}); give another --output"
        )
    # A network may have been skipped for a package that is installed by now.
    earlier = replace(earlier, skipped={}, calibration=None)
    same = earlier.profile == fresh.profile
    return earlier if same else replay(earlier, profile, {entry.name: entry for entry in networks})
