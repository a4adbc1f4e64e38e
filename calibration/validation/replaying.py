"""The measurements of an earlier run beside the predictions of a profile: nothing is run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

from placer import machine
from placer import profile as profiles
from placer.calibration.suite import accelerator_entries, entries
from placer.calibration.validation.grouping import group_by
from placer.calibration.validation.held_out import held_out_entries
from placer.calibration.validation.predictions import predicted_cells, unpredicted
from placer.calibration.validation.record import Cell, Report, load
from placer.errors import CalibrationError, ProfileMissing
from placer.pricing import nearest_profile
from placer.profile import Profile

#: Takes a line on what is being done.
Progress = Callable[[str], None]


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
    found = load(output)
    # How many threads the process has does not matter: every cell says its own.
    changed = machine.differences({**found.fingerprint, "threads": here["threads"]}, here, ())
    if changed:
        raise CalibrationError(
            f"{output} was measured on another machine or set-up ({'; '.join(changed)}); give another --output"
        )
    # A network may have been skipped for a package that is installed by now.
    found = replace(found, skipped={})
    return found if found.profile == fresh.profile else replay(found, profile)
