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


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a part; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m placer.calibration.gpu_run.child", description=__doc__)
    parser.add_argument("name", choices=[part.name for part in PARTS])
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--device", required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--only", action="append", default=[])
    options = parser.parse_args(arguments)
    module = importlib.import_module(f"placer.calibration.gpu_run.{options.name}")
    # What starting took is not the part's.
    deadline = time.perf_counter() + options.seconds
    module.run(Job(options.folder, options.device, deadline, tuple(options.only)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
