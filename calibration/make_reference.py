"""Measures this machine at length, for others to learn from: ``python -m placer.calibration.make_reference NAME``.

Each call is one sitting of 25 minutes, whose journal stays in a folder; the profiles are made of all sittings there,
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

from placer.calibration.fitting.device import LEAST_POINTS
from placer.calibration.measuring.journal import Journal
from placer.calibration.measuring.observation import StepObservation
from placer.calibration.measuring.speed_probe import Pulse, is_alike, pacing_cores, usual_beat
from placer.calibration.progress import silent
from placer.calibration.runner import build, measure, targets
from placer.decision.threads import running_with
from placer.errors import CalibrationError
from placer.machine import host as machine
from placer.profile import profile
from placer.profile.files import data_home
from placer.profile.profile import Profile

#: Seconds of measuring that a sitting is worth.
BUDGET = 1500.0
#: Share of a sitting that is listened for how fast the machine is at rest, before.
LISTENING = 0.005
#: Least share of a sitting's steps that makes a pace of its own.
LEAST_SHARE = 0.15
#: Lengths of steps (seconds) between which beats are told apart, the share of beats that are called rest, by how much
#: those of longer steps may be longer, and the fewest steps of one length that tell.
LENGTHS, RESTING, MOST_LONGER, LEAST_OF_LENGTH = (1e-3, 3e-3, 1e-2, 3e-2), 0.05, 1.15, 100


def sit(folder: Path, *, seconds: float) -> None:
    """Measure every device for ``seconds`` in all, into a journal of its own in ``folder``.

    Waits for the machine at rest, and of steps that were at rest in part keeps to that part: most of a day it is busy.
    Draws other probes than the sittings before did.
    """
    earlier = len(list(folder.glob("*.journal")))
    stamp = dt.datetime.now(dt.timezone.utc).strftime("%Y%m%dT%H%M%S.%f")
    journal = Journal(folder / f"{stamp}.journal", machine.fingerprint())
    for target in targets(machine.available_devices(), quick=False):
        with running_with(target.threads):
            rest = Pulse(pacing_cores(target.device, target.threads)).fastest(LISTENING * seconds)
        measure(target, seconds * target.share, journal, silent(), time.perf_counter, usual=rest, drawn=earlier)


def together(folder: Path) -> tuple[Profile, Profile | None]:
    """The profiles of all sittings in ``folder``: of the machine at rest, and while neighbours keep it busy.

    The latter is None where that was hardly ever seen. Raises CalibrationError where there is no sitting, where one is
    of another machine or of other settings than this process has, and where all together say too little.
    """
    fingerprint = machine.fingerprint()
    sittings = [Journal(path, fingerprint, existing=True) for path in sorted(folder.glob("*.journal"))]
    if not sittings:
        raise CalibrationError(f"no sitting in {folder}: measure one, with a budget above 0")
    with tempfile.TemporaryDirectory() as scratch:
        rest, busy = (Journal(Path(scratch) / f"{pace}.journal", fingerprint) for pace in ("rest", "busy"))
        _sort(sittings, rest, busy)
        return _profile(rest, fingerprint), _profile(busy, fingerprint) if busy.observations else None


def _profile(journal: Journal, fingerprint: dict[str, object]) -> Profile:
    return replace(build(journal, fingerprint, interrupted=False, unaided=True), samples=())


def _sort(sittings: Sequence[Journal], rest: Journal, busy: Journal) -> None:
    """Put the steps of all sittings where they belong, with the medians of the sittings' rates."""
    for device, threads in dict.fromkeys(key for sitting in sittings for key in sitting.rates):
        rates = [sitting.rates[device, threads] for sitting in sittings if (device, threads) in sitting.rates]
        common = {k: statistics.median(r[k] for r in rates) for k in sorted(set(rates[0]).intersection(*rates))}
        steps = [step for sitting in sittings for step in leveled(sitting.of(device, threads))]
        spent = sum(sitting.seconds.get((device, threads), 0.0) for sitting in sittings)
        for journal, some in zip((rest, busy), by_pace(steps), strict=True):
            if some:
                journal.add_rates(device, threads, common, 0.0)
            for step in some:
                journal.add(step, spent / len(some))


def leveled(steps: Sequence[StepObservation]) -> list[StepObservation]:
    """``steps`` of one sitting with the beats that short ones would have had around them.

    Large products lower the clock of their core, and what ran last has displaced the beat's code and data: where short
    steps have beats of 62 microseconds around them, long ones have some of 68 at the same pace of the machine.
    """
    classes: dict[int, list[float]] = {}
    for step in steps:
        classes.setdefault(bisect(LENGTHS, step.seconds), []).append(step.beat)
    rest = {n: float(np.quantile(beats, RESTING)) for n, beats in classes.items() if len(beats) >= LEAST_OF_LENGTH}
    short = rest.get(0, 0.0)
    longer = {n: min(max(beat / short, 1.0), MOST_LONGER) for n, beat in rest.items() if short > 0.0}
    return [replace(step, beat=step.beat / longer.get(bisect(LENGTHS, step.seconds), 1.0)) for step in steps]


def by_pace(steps: Sequence[StepObservation]) -> tuple[list[StepObservation], list[StepObservation]]:
    """Those at the faster and those at the slower of the two paces that most were measured at.

    The latter are none where they would be too few and where the pulse was not felt; where no pace lasted, all are one.
    """
    fullest, others = _parted(steps)
    if len(fullest) < LEAST_POINTS:
        return list(steps), []
    next_fullest, _ = _parted(others)
    if len(next_fullest) < max(LEAST_SHARE * len(steps), LEAST_POINTS):
        return fullest, []
    rest, busy = sorted((fullest, next_fullest), key=lambda some: statistics.median(step.beat for step in some))
    return rest, busy


def _parted(steps: Sequence[StepObservation]) -> tuple[list[StepObservation], list[StepObservation]]:
    """Those at the pace that most have, and the others; where the pulse was not felt, all and none."""
    usual = usual_beat(step.beat for step in steps)
    if usual is None:
        return list(steps), []
    alike: list[StepObservation] = []
    others: list[StepObservation] = []
    for step in steps:
        (alike if is_alike(step.beat, usual) else others).append(step)
    return alike, others


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m placer.calibration.make_reference", description=__doc__)
    parser.add_argument("name", help="what to call the profile")
    parser.add_argument("--budget", type=float, default=BUDGET, help="seconds of this sitting; 0: fit what is there")
    parser.add_argument("--sittings", type=Path, help="the folder of all sittings (default: in the data folder)")
    options = parser.parse_args(arguments)
    target = profile.shipped_folder() / profile.named_path(options.name).name
    folder = options.sittings or data_home() / "sittings" / options.name
    if options.budget > 0.0:
        sit(folder, seconds=options.budget)
    rest, busy = together(folder)
    print(profile.save(rest, target))
    if busy is not None:
        print(profile.save(busy, target.with_stem(f"{target.stem}-busy")))
    return 0


if __name__ == "__main__":
    sys.exit(main())
