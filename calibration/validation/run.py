"""Predicted beside measured, on real networks: the proof of everything else.

Every network is predicted before it is measured. Cells of one network are measured in turns. A network that fails, or
that cannot be predicted, stays in the record with the reason.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path

import torch

from placer import machine
from placer import profile as profiles
from placer.calibration.measuring.speed_probe import USUAL_READING, SpeedProbe, probed_cores
from placer.calibration.measuring.timing import Clock
from placer.calibration.suite import Entry, accelerator_entries, entries
from placer.calibration.validation import record
from placer.calibration.validation.cells import Effort, cells_of, measured_cells, predicted_cells, unpredicted
from placer.calibration.validation.grouping import group_by
from placer.calibration.validation.held_out import held_out_entries
from placer.calibration.validation.record import Cell, Key, Report
from placer.errors import CalibrationError, ProfileMissing
from placer.pricing import nearest_profile
from placer.profile import Profile
from placer.units import format_seconds
from placer.workload import same_randomness

#: Takes a line on what is being done.
Progress = Callable[[str], None]
#: Visits more, for cells that on no visit had the machine at its usual speed for this share of their steps: what was
#: timed then are moments in between, disturbed in part. Where one visit has to do, there is no time.
MORE_VISITS, MOSTLY = 3, 0.5
#: Seconds spent measuring one cell on each visit, unless three of its steps take longer.
SECONDS_PER_CELL = 0.5


def validate(
    networks: Sequence[Entry], profile: Profile, devices: Sequence[str], *, threads: Sequence[int] | None = None,
    progress: Progress = lambda _: None, clock: Clock = time.perf_counter, output: Path | None = None, rounds: int = 5,
    time_limit_per_cell: float = SECONDS_PER_CELL, visits: int = 1, deadline: float = math.inf, isolated: bool = True,
) -> Report:  # fmt: skip
    """Predict and measure every cell: network x batch x mode x device x number of CPU threads.

    ``threads`` is the CPU thread counts to run with (None: as the process has now); they are restored at the end. With
    ``output`` the record is written after every network, and a run that finds the record of an earlier one there only
    measures what is not in it; cells that failed are tried again. Predictions always come from ``profile``, and are
    made before anything is measured. The suite is gone through ``visits`` times, and again for cells during which the
    machine was not mostly at its usual speed. No network is begun once ``clock()`` has passed ``deadline``: the next
    run goes on. ``isolated``: the baseline of ops timed alone is measured too.

    Raises CalibrationError if ``output`` was measured on another machine, or cannot be read or written.
    """
    before = torch.get_num_threads()
    places = [(device, count) for device in devices for count in threads or (before,)]
    cores = {probed_cores(*place) for place in places} if clock is time.perf_counter else set()
    speed_probes = {count: SpeedProbe(count, usual=_usual_reading(profile, count)) for count in cores}
    effort = Effort(rounds, time_limit_per_cell, clock, isolated=isolated)
    run = _Run(networks, profile, places, effort, speed_probes, progress, output, deadline, resumed(output, profile))
    try:
        with same_randomness(devices):
            for visit in range(visits):
                run.visit(visit)
            # A machine that never was at its usual speed is not going to be.
            if visits > 1 and any(any(cell.usual) for cell in run.report.cells):
                for visit in range(visits, visits + MORE_VISITS):
                    run.visit(visit, unusual_only=True)
    finally:
        torch.set_num_threads(before)
    run.save()
    return run.report


@dataclass
class _Run:
    """A validation as it goes. ``speed_probes`` by number of cores; none where time is not the machine's own."""

    networks: Sequence[Entry]
    profile: Profile
    places: Sequence[tuple[str, int]]
    effort: Effort
    speed_probes: Mapping[int, SpeedProbe]
    progress: Progress
    output: Path | None
    deadline: float
    report: Report

    def visit(self, visit: int, *, unusual_only: bool = False) -> None:
        """Go through all networks once more; ``visit`` counts from 0.

        ``unusual_only``: no cells but those during which the machine was not mostly at its usual speed.
        """
        of = len(self.networks)
        for number, entry in enumerate(self.networks, 1):
            if self.effort.clock() >= self.deadline:
                self.progress(f"out of time: {of - number + 1} networks are left for the next run")
                break
            missing = entry.missing()
            if missing:
                reason = f"not installed: {', '.join(missing)}"
                if entry.name not in self.report.skipped:  # once, not on every visit
                    self.progress(f"{number}/{of} {entry.name}: skipped, {reason}")
                self.report = replace(self.report, skipped={**self.report.skipped, entry.name: reason})
                continue
            known = {cell.key: cell for cell in self.report.cells}
            cells = [known.get(cell.key, cell) for cell in cells_of(entry, self.places)]
            # On the first visit, cells that failed in an earlier run are tried again; later ones only add to others.
            due = [cell for cell in cells if len(cell.visits) <= visit and (visit == 0 or cell.visits)]
            if unusual_only:
                due = [cell for cell in due if cell.usual and max(cell.usual) < MOSTLY]
            if due:
                again = f", visit {visit + 1}" if visit else ""
                self.progress(f"{number}/{of} {entry.name}: {len(due)} cells{again}")
                self.report = self.report.with_cells(self._network(entry, due))
                self.save()

    def save(self) -> None:
        """Write the record, where one is wanted."""
        if self.output is not None:
            record.save(self.report, self.output)

    def _network(self, entry: Entry, cells: list[Cell]) -> tuple[Cell, ...]:
        """The cells of one network, predicted unless they are, and measured once more."""
        predicted = cells if all(cell.visits for cell in cells) else predicted_cells(entry, cells, self.profile)
        measured: dict[Key, Cell] = {}
        for device, threads in self.places:
            here = [cell for cell in predicted if (cell.device, cell.threads) == (device, threads)]
            if not here:
                continue
            torch.set_num_threads(threads)
            effort = replace(self.effort, speed_probe=self.speed_probes.get(probed_cores(device, threads)))
            for cell in measured_cells(entry, here, device, effort):
                measured[cell.key] = cell
                self.progress("  " + _progress_line(cell))
        return tuple(measured[cell.key] for cell in predicted)


def _usual_reading(profile: Profile, threads: int) -> float | None:
    """Seconds of a reading while calibration measured: predictions are of that speed."""
    known = (fit.rates.get(USUAL_READING) for fit in profile.fits if (fit.device, fit.threads) == ("cpu", threads))
    return next(known, None)


def _progress_line(cell: Cell) -> str:
    shown = [
        "not predicted" if cell.predicted is None else f"predicted {format_seconds(cell.predicted)}",
        "failed" if cell.measured is None else f"measured {format_seconds(cell.measured)}",
    ]
    return f"{cell.title}: {', '.join(shown)}"


def replay(report: Report, profile: Profile, *, progress: Progress = lambda _: None) -> Report:
    """The same measurements beside the predictions of ``profile``; nothing is run."""
    known = {entry.name: entry for entry in (*entries("full"), *accelerator_entries())}
    if any(cell.network not in known for cell in report.cells):  # they take a second to draw
        known |= {entry.name: entry for entry in held_out_entries()}
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


def profile_of_record(report: Report, path: Path) -> Profile:
    """The profile to predict a record with where none is named: the one it names, if it lies beside it in a file.

    Else this machine's; where there is none, the shipped one of the class of CPU nearest to the record's. Raises
    ProfileError where a profile cannot be read.
    """
    beside = path.parent / report.profile.rpartition(" of ")[0]
    if beside.is_file():
        found = profiles.load(beside)
        if profile_title(found) == report.profile:
            return found
    try:
        return profiles.load(None)
    except ProfileMissing:
        return nearest_profile(report.fingerprint)


def profile_title(profile: Profile) -> str:
    """Which profile this is: two calibrations never share it. Records travel, so a file goes without its folders."""
    return f"{Path(profile.name).name or 'in memory'} of {profile.created}"


def resumed(output: Path | None, profile: Profile) -> Report:
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
