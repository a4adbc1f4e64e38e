"""Measures this machine at length, for others to learn from: ``python -m placer.calibration.make_reference NAME``.

Each call is one measurement session of 25 minutes, whose journal stays in a folder. The profiles are made of all
sessions there and are put among those that come with placer. They hold fits and no samples. A machine that shares its
cores runs at several speeds, and each op differs in its own way from one speed to another. So the two speeds at which
most was measured make a profile each: NAME of the faster one, the quiet machine, and NAME-busy of the other, the
contended machine.
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
from placer.calibration.fitting import LEAST_POINTS
from placer.calibration.measuring.journal import Journal, StepObservation
from placer.calibration.measuring.speed_probe import SpeedProbe, is_alike, probed_cores, usual_reading
from placer.calibration.probing import measure, targets
from placer.calibration.progress import Progress
from placer.decision import running_with
from placer.errors import CalibrationError
from placer.profile import Profile, data_home

#: Seconds of measuring in one session.
BUDGET = 1500.0
#: Share of a session that is first spent on readings, to find the quiet machine's.
LISTENING = 0.005
#: Least share of the steps that makes a speed of its own.
LEAST_SHARE = 0.15


def measure_session(folder: Path, *, seconds: float) -> None:
    """Measure every device for ``seconds`` in all, into a new journal in ``folder``.

    Most of a day the machine is contended: the session waits for it to be quiet, and where a step was so in part, it
    keeps to that part. It draws other probes than the sessions before. Raises CalibrationError for a session in
    ``folder`` that cannot be read here.
    """
    earlier = len(_sessions(folder, machine.fingerprint()))
    stamp = dt.datetime.now(dt.timezone.utc).strftime("%Y%m%dT%H%M%S.%f")
    journal = Journal(folder / f"{stamp}.journal", machine.fingerprint())
    for target in targets(machine.available_devices(), quick=False):
        with running_with(target.threads):
            probe = SpeedProbe(probed_cores(target.device, target.threads))
            quiet = probe.quiet_reading(LISTENING * seconds)
        measure(target, seconds * target.share, journal, Progress(), time.perf_counter, usual=quiet, drawn=earlier)


def profiles_of(folder: Path) -> tuple[Profile, Profile | None]:
    """The profiles of all sessions in ``folder``: of the quiet machine, and of the contended one.

    The latter is None where the machine was hardly ever contended. Raises CalibrationError where there is no session,
    where one is of another machine or of other settings than this process has, and where all together say too little.
    """
    fingerprint = machine.fingerprint()
    sessions = _sessions(folder, fingerprint)
    if not sessions:
        raise CalibrationError(f"no session in {folder}: measure one, with a budget above 0")
    with tempfile.TemporaryDirectory() as scratch:
        quiet, contended = (
            Journal(Path(scratch) / f"{state}.journal", fingerprint) for state in ("quiet", "contended")
        )
        _sort(sessions, quiet, contended)
        return _profile(quiet, fingerprint), _profile(contended, fingerprint) if contended.observations else None


def _sessions(folder: Path, fingerprint: dict[str, object]) -> list[Journal]:
    return [Journal(path, fingerprint, existing=True) for path in sorted(folder.glob("*.journal"))]


def _profile(journal: Journal, fingerprint: dict[str, object]) -> Profile:
    return replace(build(journal, fingerprint, interrupted=False, unaided=True), samples=())


def _sort(sessions: Sequence[Journal], quiet: Journal, contended: Journal) -> None:
    """Put the steps of all sessions into the journal they belong to, with the medians of the sessions' rates."""
    for device, threads in dict.fromkeys(key for session in sessions for key in session.rates):
        rates = [session.rates[device, threads] for session in sessions if (device, threads) in session.rates]
        common = {k: statistics.median(r[k] for r in rates) for k in sorted(set(rates[0]).intersection(*rates))}
        steps = [step for session in sessions for step in session.of(device, threads)]
        spent = sum(session.seconds.get((device, threads), 0.0) for session in sessions)
        for journal, some in zip((quiet, contended), by_speed(steps), strict=True):
            if some:
                journal.add_rates(device, threads, common, 0.0)
            for step in some:
                journal.add(step, spent / len(some))


def by_speed(steps: Sequence[StepObservation]) -> tuple[list[StepObservation], list[StepObservation]]:
    """(steps at the faster, steps at the slower) of the two speeds at which most were measured.

    There are no slower ones where they would be too few, or where no readings were taken. Where no speed lasted, all
    steps count as the faster ones.
    """
    fullest, others = _at_usual_speed(steps)
    if len(fullest) < LEAST_POINTS:
        return list(steps), []
    second, _ = _at_usual_speed(others)
    if len(second) < max(LEAST_SHARE * len(steps), LEAST_POINTS):
        return fullest, []
    quiet, contended = sorted((fullest, second), key=lambda some: statistics.median(s.reading for s in some))
    return quiet, contended


def _at_usual_speed(steps: Sequence[StepObservation]) -> tuple[list[StepObservation], list[StepObservation]]:
    """(steps at the usual speed, all others); where no readings were taken, all and none."""
    usual = usual_reading(step.reading for step in steps)
    if usual is None:
        return list(steps), []
    return [s for s in steps if is_alike(s.reading, usual)], [s for s in steps if not is_alike(s.reading, usual)]


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
        measure_session(folder, seconds=options.budget)
    quiet, contended = profiles_of(folder)
    print(profile.save(quiet, target))
    if contended is not None:
        print(profile.save(contended, target.with_stem(f"{target.stem}-busy")))
    return 0


if __name__ == "__main__":
    sys.exit(main())
