"""Measures this machine at length, for others to learn from: ``python -m placer.calibration.make_reference NAME``.

Each call is one session of 25 minutes, whose journal stays in a folder; the profiles are made of all sessions there,
and put among those that come with placer. They hold fits and no samples. A machine that shares its cores has several
paces, and one differs from another for each op in its own way. So the two at which most was measured make a profile
each: the faster one is NAME, the machine at rest; the other NAME-busy, what neighbours make of it.
"""

from __future__ import annotations

import argparse
import datetime as dt
import statistics
import sys
import tempfile
import time
from bisect import bisect
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from placer import machine, profile
from placer.calibration.fitting.device import LEAST_POINTS
from placer.calibration.measuring.journal import Journal
from placer.calibration.measuring.observation import StepObservation
from placer.calibration.measuring.speed_probe import SpeedProbe, is_alike, pacing_cores, usual_reading
from placer.calibration.progress import silent
from placer.calibration.runner import build, measure, targets
from placer.decision import running_with
from placer.errors import CalibrationError
from placer.profile import Profile, data_home

#: Seconds of measuring that a session is worth.
BUDGET = 1500.0
#: Share of a session that is listened for how fast the machine is at rest, before.
LISTENING = 0.005
#: Least share of a session's steps that makes a pace of its own.
LEAST_SHARE = 0.15
#: Lengths of steps (seconds) between which readings are told apart, the share of readings that are called rest, by how much
#: those of longer steps may be longer, and the fewest steps of one length that tell.
LENGTHS, RESTING, MOST_LONGER, LEAST_OF_LENGTH = (1e-3, 3e-3, 1e-2, 3e-2), 0.05, 1.15, 100


def sit(folder: Path, *, seconds: float) -> None:
    """Measure every device for ``seconds`` in all, into a journal of its own in ``folder``.

    Waits for the machine at rest, and of steps that were at rest in part keeps to that part: most of a day it is busy.
    Draws other probes than the sessions before did.
    """
    earlier = len(list(folder.glob("*.journal")))
    stamp = dt.datetime.now(dt.timezone.utc).strftime("%Y%m%dT%H%M%S.%f")
    journal = Journal(folder / f"{stamp}.journal", machine.fingerprint())
    for target in targets(machine.available_devices(), quick=False):
        with running_with(target.threads):
            rest = SpeedProbe(pacing_cores(target.device, target.threads)).fastest(LISTENING * seconds)
        measure(target, seconds * target.share, journal, silent(), time.perf_counter, usual=rest, drawn=earlier)


def together(folder: Path) -> tuple[Profile, Profile | None]:
    """The profiles of all sessions in ``folder``: of the machine at rest, and while neighbours keep it busy.

    The latter is None where that was hardly ever seen. Raises CalibrationError where there is no session, where one is
    of another machine or of other settings than this process has, and where all together say too little.
    """
    fingerprint = machine.fingerprint()
    sessions = [Journal(path, fingerprint, existing=True) for path in sorted(folder.glob("*.journal"))]
    if not sessions:
        raise CalibrationError(f"no session in {folder}: measure one, with a budget above 0")
    with tempfile.TemporaryDirectory() as scratch:
        rest, busy = (Journal(Path(scratch) / f"{pace}.journal", fingerprint) for pace in ("rest", "busy"))
        _sort(sessions, rest, busy)
        return _profile(rest, fingerprint), _profile(busy, fingerprint) if busy.observations else None


def _profile(journal: Journal, fingerprint: dict[str, object]) -> Profile:
    return replace(build(journal, fingerprint, interrupted=False, unaided=True), samples=())


def _sort(sessions: Sequence[Journal], rest: Journal, busy: Journal) -> None:
    """Put the steps of all sessions where they belong, with the medians of the sessions' rates."""
    for device, threads in dict.fromkeys(key for session in sessions for key in session.rates):
        rates = [session.rates[device, threads] for session in sessions if (device, threads) in session.rates]
        common = {k: statistics.median(r[k] for r in rates) for k in sorted(set(rates[0]).intersection(*rates))}
        steps = [step for session in sessions for step in leveled(session.of(device, threads))]
        spent = sum(session.seconds.get((device, threads), 0.0) for session in sessions)
        for journal, some in zip((rest, busy), by_pace(steps), strict=True):
            if some:
                journal.add_rates(device, threads, common, 0.0)
            for step in some:
                journal.add(step, spent / len(some))


def leveled(steps: Sequence[StepObservation]) -> list[StepObservation]:
    """``steps`` of one session with the readings that short ones would have had around them.

    Large products lower the clock of their core, and what ran last has evicted the reading's code and data: where short
    steps have readings of 62 microseconds around them, long ones have some of 68 at the same pace of the machine.
    """
    classes: dict[int, list[float]] = {}
    for step in steps:
        classes.setdefault(bisect(LENGTHS, step.seconds), []).append(step.reading)
    rest = {n: float(np.quantile(readings, RESTING)) for n, readings in classes.items() if len(readings) >= LEAST_OF_LENGTH}
    short = rest.get(0, 0.0)
    longer = {n: min(max(reading / short, 1.0), MOST_LONGER) for n, reading in rest.items() if short > 0.0}
    return [replace(step, reading=step.reading / longer.get(bisect(LENGTHS, step.seconds), 1.0)) for step in steps]


def by_pace(steps: Sequence[StepObservation]) -> tuple[list[StepObservation], list[StepObservation]]:
    """Those at the faster and those at the slower of the two paces that most were measured at.

    The latter are none where they would be too few and where the speed_probe was not felt; where no pace lasted, all are one.
    """
    fullest, others = _parted(steps)
    if len(fullest) < LEAST_POINTS:
        return list(steps), []
    next_fullest, _ = _parted(others)
    if len(next_fullest) < max(LEAST_SHARE * len(steps), LEAST_POINTS):
        return fullest, []
    rest, busy = sorted((fullest, next_fullest), key=lambda some: statistics.median(step.reading for step in some))
    return rest, busy


def _parted(steps: Sequence[StepObservation]) -> tuple[list[StepObservation], list[StepObservation]]:
    """Those at the pace that most have, and the others; where the speed_probe was not felt, all and none."""
    usual = usual_reading(step.reading for step in steps)
    if usual is None:
        return list(steps), []
    alike: list[StepObservation] = []
    others: list[StepObservation] = []
    for step in steps:
        (alike if is_alike(step.reading, usual) else others).append(step)
    return alike, others


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m placer.calibration.make_reference", description=__doc__)
    parser.add_argument("name", help="what to call the profile")
    parser.add_argument("--budget", type=float, default=BUDGET, help="seconds of this session; 0: fit what is there")
    parser.add_argument("--sessions", type=Path, help="the folder of all sessions (default: in the data folder)")
    options = parser.parse_args(arguments)
    target = profile.shipped_folder() / profile.named_path(options.name).name
    folder = options.sessions or data_home() / "sessions" / options.name
    if options.budget > 0.0:
        sit(folder, seconds=options.budget)
    rest, busy = together(folder)
    print(profile.save(rest, target))
    if busy is not None:
        print(profile.save(busy, target.with_stem(f"{target.stem}-busy")))
    return 0


if __name__ == "__main__":
    sys.exit(main())
