"""Measures this machine at length, for others to learn from: ``python -m placer.calibration.make_reference NAME``.

Each call is one sitting of 25 minutes, whose journal stays in a folder; the profile is made of all sittings there,
and put among those that come with placer. It holds fits and no samples. A machine that shares its cores has many
paces; one pace differs from another for each op in its own way, and only the fastest, at which no neighbour is busy, is
the same on all such machines. What was measured at any other is left out: sit again until enough is left.
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

import numpy as np

from placer import machine, profile
from placer.calibration.journal import Journal
from placer.calibration.observation import StepObservation
from placer.calibration.progress import silent
from placer.calibration.pulse import is_alike
from placer.calibration.runner import build, measure, targets
from placer.errors import CalibrationError
from placer.profile import Profile
from placer.store import data_home

#: Seconds of measuring that a sitting is worth.
BUDGET = 1500.0
#: Share of the time, or of the steps, that is fast enough to tell the machine at rest.
RESTING = 0.1


def sit(folder: Path, *, seconds: float) -> None:
    """Measure every device for ``seconds`` in all, into a journal of its own in ``folder``."""
    stamp = dt.datetime.now(dt.timezone.utc).strftime("%Y%m%dT%H%M%S.%f")
    journal = Journal(folder / f"{stamp}.journal", machine.fingerprint())
    for target in targets(machine.available_devices(), quick=False):
        measure(target, seconds * target.share, journal, silent(), time.perf_counter, pace=RESTING)


def together(folder: Path) -> Profile:
    """The profile of all sittings in ``folder``, at rest.

    Raises CalibrationError where there is none, where one is of another machine or of other settings than this process
    has, and where all together say too little.
    """
    fingerprint = machine.fingerprint()
    sittings = [Journal(path, fingerprint, existing=True) for path in sorted(folder.glob("*.journal"))]
    if not sittings:
        raise CalibrationError(f"no sitting in {folder}: measure one, with a budget above 0")
    with tempfile.TemporaryDirectory() as scratch:
        pooled = _pooled(sittings, Path(scratch) / "pooled.journal", fingerprint)
        return build(pooled, fingerprint, interrupted=False, unaided=True)


def _pooled(sittings: Sequence[Journal], path: Path, fingerprint: dict[str, object]) -> Journal:
    """One journal of what all sittings measured at rest, with the medians of their rates."""
    pooled = Journal(path, fingerprint)
    for device, threads in dict.fromkeys(key for sitting in sittings for key in sitting.rates):
        rates = [sitting.rates[device, threads] for sitting in sittings if (device, threads) in sitting.rates]
        common = set(rates[0]).intersection(*rates)
        pooled.add_rates(device, threads, {k: statistics.median(r[k] for r in rates) for k in sorted(common)}, 0.0)
        steps = _at_rest([step for sitting in sittings for step in sitting.of(device, threads)])
        took = sum(sitting.seconds.get((device, threads), 0.0) for sitting in sittings) / max(len(steps), 1)
        for step in steps:
            pooled.add(step, took)
    return pooled


def _at_rest(steps: Sequence[StepObservation]) -> Sequence[StepObservation]:
    """Those at the pace of a machine without busy neighbours: of the fastest, and as fast."""
    if not steps:
        return steps
    resting = float(np.quantile([step.beat for step in steps], RESTING))
    return [step for step in steps if is_alike(step.beat, resting)]


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
    print(profile.save(replace(together(folder), samples=()), target))
    return 0


if __name__ == "__main__":
    sys.exit(main())
