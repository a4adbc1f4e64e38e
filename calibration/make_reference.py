"""Measures this machine at length, for others to learn from: ``python -m placer.calibration.make_reference NAME``.

The profile is put among those that come with placer. It holds fits and no samples. Like any calibration it goes on
where it was cut short, and the longer it takes the better: a machine that shares its cores has many paces, and what
others want to know is the usual one.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace

from placer import profile
from placer.calibration.runner import calibrate

#: Seconds of measuring that a reference is worth.
BUDGET = 1500.0


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m placer.calibration.make_reference", description=__doc__)
    parser.add_argument("name", help="what to call the profile")
    parser.add_argument("--budget", type=float, default=BUDGET, help="seconds")
    options = parser.parse_args(arguments)
    target = profile.shipped_folder() / profile.named_path(options.name).name
    found = calibrate(budget=options.budget, path=target, unaided=True)
    print(profile.save(replace(found, samples=()), target))
    return 0


if __name__ == "__main__":
    sys.exit(main())
