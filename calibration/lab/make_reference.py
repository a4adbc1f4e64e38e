"""Measures this machine at length, for others to learn from: ``python -m placer.calibration.lab.make_reference NAME``.

Each call is one measurement session of 25 minutes, whose journal stays in a folder. The profile is made of all sessions
there and is put among those that come with placer. It holds fits and no samples.
"""

from __future__ import annotations

import argparse
import datetime as dt
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from placer import machine, profile
from placer.calibration.build import build
from placer.calibration.measuring.journal import Journal
from placer.calibration.probing import measure, targets
from placer.calibration.progress import Progress
from placer.errors import CalibrationError
from placer.profile import Profile, data_home

#: Seconds of measuring in one session.
BUDGET = 1500.0


def measure_session(folder: Path, *, seconds: float) -> None:
    """Measure every device for ``seconds`` in all, into a new journal in ``folder``.

    It draws other probes than the sessions before. Raises CalibrationError for a session in ``folder`` that cannot be
    read here.
    """
    earlier = len(_sessions(folder, machine.fingerprint()))
    stamp = dt.datetime.now(dt.timezone.utc).strftime("%Y%m%dT%H%M%S.%f")
    journal = Journal(folder / f"{stamp}.journal", machine.fingerprint())
    for target in targets(machine.available_devices(), quick=False):
        measure(target, seconds * target.share, journal, Progress(), time.perf_counter, drawn=earlier)


def profile_of(folder: Path) -> Profile:
    """The profile of all sessions in ``folder``.

    Raises CalibrationError where there is no session, where one is of another machine or of other settings than this
    process has, and where all together say too little.
    """
    fingerprint = machine.fingerprint()
    sessions = _sessions(folder, fingerprint)
    if not sessions:
        raise CalibrationError(f"no session in {folder}: measure one, with a budget above 0")
    with tempfile.TemporaryDirectory() as scratch:
        together = Journal(Path(scratch) / "all.journal", fingerprint)
        _join(sessions, together)
        return replace(build(together, fingerprint, interrupted=False), samples=())


def _sessions(folder: Path, fingerprint: dict[str, object]) -> list[Journal]:
    return [Journal(path, fingerprint, existing=True) for path in sorted(folder.glob("*.journal"))]


def _join(sessions: Sequence[Journal], together: Journal) -> None:
    """Put the steps of all sessions into one journal, with the medians of the sessions' rates."""
    for device, threads in dict.fromkeys(key for session in sessions for key in session.rates):
        rates = [session.rates[device, threads] for session in sessions if (device, threads) in session.rates]
        common = {k: statistics.median(r[k] for r in rates) for k in sorted(set(rates[0]).intersection(*rates))}
        steps = [step for session in sessions for step in session.of(device, threads)]
        spent = sum(session.seconds.get((device, threads), 0.0) for session in sessions)
        together.add_rates(device, threads, common, 0.0)
        for step in steps:
            together.add(step, spent / len(steps))


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m placer.calibration.lab.make_reference", description=__doc__)
    parser.add_argument("name", help="what to call the profile")
    parser.add_argument("--budget", type=float, default=BUDGET, help="seconds of this session; 0: fit what is there")
    parser.add_argument("--sessions", type=Path, help="the folder of all sessions (default: in the data folder)")
    options = parser.parse_args(arguments)
    target = profile.shipped_folder() / profile.named_path(options.name).name
    folder = options.sessions or data_home() / "sessions" / options.name
    if options.budget > 0.0:
        measure_session(folder, seconds=options.budget)
    print(profile.save(profile_of(folder), target))
    return 0


if __name__ == "__main__":
    sys.exit(main())
