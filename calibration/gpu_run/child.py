"""The process of one part: ``python -m placer.calibration.gpu_run.child NAME ...``, started by ``command``."""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from placer.calibration.gpu_run.job import Job
from placer.calibration.gpu_run.parts import PARTS

#: The function behind each part: ``module.function`` of this package.
WORK = {part.name: part.work or f"{part.name}.run" for part in PARTS}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a part; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m placer.calibration.gpu_run.child", description=__doc__)
    parser.add_argument("name", choices=WORK)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--device", required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--only", action="append", default=[])
    options = parser.parse_args(arguments)
    module, function = WORK[options.name].split(".")
    work = getattr(importlib.import_module(f"placer.calibration.gpu_run.{module}"), function)
    # What starting took is not the part's.
    deadline = time.perf_counter() + options.seconds
    work(Job(options.folder, options.device, deadline, tuple(options.only)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
