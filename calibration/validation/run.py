"""Predicted beside measured, on real networks: the proof of everything else.

Every network is predicted before it is measured. Cells of one network are measured in turns. A network that fails, or
that cannot be predicted, stays in the record with the reason.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any, TextIO, cast

import torch

from placer import machine
from placer import profile as profiles
from placer.calibration.measuring.speed_probe import USUAL_READING, SpeedProbe, probed_cores
from placer.calibration.measuring.timing import Clock
from placer.calibration.suite import SUITES, Entry, entries
from placer.calibration.validation import record
from placer.calibration.validation.cells import Effort, cells_of, measured_cells, predicted_cells, unpredicted
from placer.calibration.validation.record import Cell, Key, Report
from placer.decision import same_randomness
from placer.errors import CalibrationError
from placer.machine import differences
from placer.profile import Profile
from placer.units import format_seconds
from placer.workload import Data

Progress = Callable[[str], None]

#: Times the whole suite is gone through: a machine that shares its cores is another one some minutes later, and what is
#: predicted is its usual self. The quick suite, which has to end within a minute, is gone through once.
VISITS, QUICK_VISITS = 3, 1
#: Visits more, for cells that on no visit had the machine at its usual pace for this share of their steps: what was
#: timed then are moments in between, disturbed in part. Where one visit has to do, there is no time.
MORE_VISITS, MOSTLY = 3, 0.5
#: Seconds spent measuring one cell on each visit, unless three of its steps take longer.
SECONDS_PER_CELL, QUICK_SECONDS_PER_CELL = 0.5, 0.8


@dataclass(frozen=True)
class _Run:
    """What all cells of one validation share."""

    profile: Profile
    places: tuple[tuple[str, int], ...]
    effort: Effort
    progress: Progress
    #: By number of cores that take part; empty where time is not the machine's own.
    speed_probes: Mapping[int, SpeedProbe]


def validate(
    networks: Sequence[Entry],
    profile: Profile,
    devices: Sequence[str],
    *,
    threads: Sequence[int] | None = None,
    data: Data = "host",
    progress: Progress | None = None,
    clock: Clock = time.perf_counter,
    output: Path | None = None,
    rounds: int = 5,
    time_limit_per_cell: float = SECONDS_PER_CELL,
    visits: int = 1,
    deadline: float = math.inf,
) -> Report:
    """Predict and measure every cell: network x batch x mode x device x number of CPU threads.

    ``threads`` is the CPU thread counts to run with (None: as the process has now); they are restored at the end. With
    ``output`` the record is written after every network, and a run that finds the record of an earlier one there only
    measures what is not in it; cells that failed are tried again. Predictions always come from ``profile``, and are
    made before anything is measured. The suite is gone through ``visits`` times, and again for cells that the machine
    was not mostly at its usual pace for. No network is begun once ``clock()`` has passed ``deadline``: the next run
    goes on.

    Raises CalibrationError if ``output`` was measured on another machine, or cannot be read or written.
    """
    counts = tuple(threads) if threads else (torch.get_num_threads(),)
    places = tuple((device, count) for device in devices for count in counts)
    cores = {probed_cores(*place) for place in places} if clock is time.perf_counter else set()
    run = _Run(
        profile=profile,
        places=places,
        effort=Effort(rounds, time_limit_per_cell, data, clock),
        progress=progress or (lambda _: None),
        speed_probes={count: SpeedProbe(count, usual=_usual_reading(profile, count)) for count in cores},
    )
    report = _resumed(output, profile)
    before = torch.get_num_threads()
    try:
        with same_randomness(devices):
            for visit in range(visits):
                report = _visit(report, networks, visit, run, output, deadline)
            # A machine that never was at its usual pace is not going to be.
            if visits > 1 and any(any(cell.usual) for cell in report.cells):
                for visit in range(visits, visits + MORE_VISITS):
                    report = _visit(report, networks, visit, run, output, deadline, unusual_only=True)
    finally:
        torch.set_num_threads(before)
    if output is not None:
        record.save(report, output)
    return report


def _visit(
    report: Report, networks: Sequence[Entry], visit: int, run: _Run, output: Path | None, deadline: float, *,
    unusual_only: bool = False,
) -> Report:  # fmt: skip
    """The report after all networks were visited once more; ``visit`` counts from 0.

    ``unusual_only``: no cells but those that the machine did not mostly have its usual pace for.
    """
    for number, entry in enumerate(networks, 1):
        if run.effort.clock() >= deadline:
            run.progress(f"out of time: {len(networks) - number + 1} networks are left for the next run")
            break
        missing = entry.missing()
        if missing:
            reason = f"not installed: {', '.join(missing)}"
            if entry.name not in report.skipped:  # once, not on every visit
                run.progress(f"{number}/{len(networks)} {entry.name}: skipped, {reason}")
            report = replace(report, skipped={**report.skipped, entry.name: reason})
            continue
        known = {cell.key: cell for cell in report.cells}
        cells = [known.get(cell.key, cell) for cell in cells_of(entry, run.places)]
        # On the first visit, cells that failed in an earlier run are tried again; later ones only add to what is there.
        due = [cell for cell in cells if len(cell.visits) <= visit and (visit == 0 or cell.visits)]
        if unusual_only:
            due = [cell for cell in due if cell.usual and max(cell.usual) < MOSTLY]
        if due:
            again = f", visit {visit + 1}" if visit else ""
            run.progress(f"{number}/{len(networks)} {entry.name}: {len(due)} cells{again}")
            report = report.with_cells(_validate_network(entry, due, run))
            if output is not None:
                record.save(report, output)
    return report


def replay(report: Report, profile: Profile, *, progress: Progress | None = None) -> Report:
    """The same measurements beside the predictions of ``profile``; nothing is run."""
    known = {entry.name: entry for entry in entries("full")}
    say = progress or (lambda _: None)
    fresh: list[Cell] = []
    for network, cells in _by_network(report.cells).items():
        say(f"{network}: {len(cells)} cells")
        entry = known.get(network)
        if entry is None:
            fresh += [unpredicted(cell, "no longer in the suite") for cell in cells]
        elif missing := entry.missing():
            fresh += [unpredicted(cell, f"not installed: {', '.join(missing)}") for cell in cells]
        else:
            fresh += predicted_cells(entry, cells, profile, "host")
    return replace(report, cells=tuple(fresh), profile=_describe(profile))


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
) -> int:
    """What ``placer validate`` does: measure (or, with ``against``, replay a record) and print the tables.

    ``suite`` None is ``quick`` when measuring, and every cell of the record when replaying. ``devices`` None are those
    that are both here and calibrated; when replaying, those of the record. ``threads`` are the numbers of CPU threads
    to run with (None: as the process has now) or, when replaying, those of the cells to keep. Returns the exit code: 0,
    or 1 if not one cell has both a prediction and a measurement. Raises the errors of ``placer.errors`` and ValueError
    for an argument that is not accepted.
    """
    from placer.calibration.validation.report import render

    if suite is not None and suite not in SUITES:
        raise ValueError(f"unknown suite {suite!r}: one of {', '.join(SUITES)} is accepted")
    chosen = profile if isinstance(profile, Profile) else profiles.load(profile)
    say: Progress = partial(print, file=sys.stderr, flush=True) if progress else (lambda _: None)
    if against is not None:
        names = {entry.name for entry in entries(cast(Any, suite))} if suite else None
        found = record.load(_record_path(against))
        kept = [cell for cell in found.cells if names is None or cell.network in names]
        kept = [cell for cell in kept if devices is None or cell.device in devices]
        kept = [cell for cell in kept if threads is None or cell.threads in threads]
        report = replay(replace(found, cells=tuple(kept)), chosen, progress=say)
        if output is not None:
            record.save(report, Path(output))
    else:
        stale = profiles.stale_fields(chosen, machine.fingerprint())
        if stale:
            say(f"warning: the profile is stale ({'; '.join(stale)}); run: placer calibrate")
        quick = suite in (None, "quick")
        usual = QUICK_SECONDS_PER_CELL if quick else SECONDS_PER_CELL
        report = validate(
            entries(cast(Any, suite or "quick")),
            chosen,
            _usable(chosen, devices),
            threads=threads,
            progress=say,
            output=None if output is None else Path(output),
            time_limit_per_cell=time_limit_per_cell or usual,
            visits=QUICK_VISITS if quick else VISITS,
        )
    render(report, stream or sys.stdout)
    return 0 if any(cell.predicted is not None and cell.measured is not None for cell in report.cells) else 1


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


def _usual_reading(profile: Profile, threads: int) -> float | None:
    """Seconds of a reading while calibration measured: at the pace that was learnt from, predictions are to be right."""
    known = (fit.rates.get(USUAL_READING) for fit in profile.fits if (fit.device, fit.threads) == ("cpu", threads))
    return next(known, None)


def _record_path(against: str | Path) -> Path:
    """A file, or the name of a record that comes with placer."""
    path = Path(against)
    shipped = Path(__file__).parents[1] / "records" / f"{path.name}.json"
    return shipped if not path.exists() and path.name == str(against) and shipped.exists() else path


def _resumed(output: Path | None, profile: Profile) -> Report:
    """An empty report, or the one at ``output`` beside predictions of this profile."""
    here = machine.fingerprint()
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    fresh = Report(created=now, fingerprint=here, profile=_describe(profile))
    if output is None or not output.exists():
        return fresh
    found = record.load(output)
    # How many threads the process has does not matter: every cell says its own.
    changed = differences({**found.fingerprint, "threads": here["threads"]}, here, ())
    if changed:
        raise CalibrationError(
            f"{output} was measured on another machine or set-up ({'; '.join(changed)}); give another --output"
        )
    # A network may have been skipped for a package that is installed by now.
    found = replace(found, skipped={})
    return found if found.profile == fresh.profile else replay(found, profile)


def _describe(profile: Profile) -> str:
    """Which profile this is: two calibrations never share it. Records travel, so a file goes without its folders."""
    return f"{Path(profile.name).name or 'in memory'} of {profile.created}"


def _by_network(cells: Sequence[Cell]) -> dict[str, list[Cell]]:
    groups: dict[str, list[Cell]] = {}
    for cell in cells:
        groups.setdefault(cell.network, []).append(cell)
    return groups


def _validate_network(entry: Entry, cells: list[Cell], run: _Run) -> tuple[Cell, ...]:
    seen = all(cell.visits for cell in cells)
    predicted = cells if seen else predicted_cells(entry, cells, run.profile, run.effort.data)
    measured: dict[Key, Cell] = {}
    for device, threads in run.places:
        here = [cell for cell in predicted if (cell.device, cell.threads) == (device, threads)]
        if not here:
            continue
        torch.set_num_threads(threads)
        effort = replace(run.effort, speed_probe=run.speed_probes.get(probed_cores(device, threads)))
        results = measured_cells(entry, here, device, effort)
        measured |= {cell.key: cell for cell in results}
        for cell in results:
            run.progress("  " + _progress_line(cell))
    return tuple(measured[cell.key] for cell in predicted)


def _progress_line(cell: Cell) -> str:
    shown = [
        "not predicted" if cell.predicted is None else f"predicted {format_seconds(cell.predicted)}",
        "failed" if cell.measured is None else f"measured {format_seconds(cell.measured)}",
    ]
    return f"{cell.title}: {', '.join(shown)}"
