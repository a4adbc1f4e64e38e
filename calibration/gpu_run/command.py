"""Runs the parts one after another within the time, each in a process of its own, and writes down how each ended."""

from __future__ import annotations

import argparse
import re
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from placer import machine
from placer.calibration.gpu_run.job import Job
from placer.calibration.gpu_run.lines import Lines
from placer.calibration.gpu_run.parts import GRACE, PARTS, SECONDS, STARTING, Part, seconds_of
from placer.calibration.measuring.watchdog import HungError, run_limited
from placer.errors import CalibrationError


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns 0 where every part ended in order and in time, else 1."""
    parser = argparse.ArgumentParser(prog="python -m placer.calibration.gpu_run", description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("calibration/records"), help="where records are kept")
    parser.add_argument("--device", help="an accelerator; the first one without this")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="for everything")
    parser.add_argument("--only", action="append", default=[], metavar="NETWORK", help="run these networks only")
    options = parser.parse_args(arguments)
    end = time.perf_counter() + options.seconds
    found = machine.accelerators()
    device = options.device or next(iter(found), None)
    if device is None or device not in found:
        there = f"there is no {device} here: there is {', '.join(found)}"
        print(there if found else "torch sees no accelerator here", file=sys.stderr)
        return 1
    job = Job(options.folder.absolute() / folder_name(device), device, end, tuple(options.only))
    before = signal.signal(signal.SIGTERM, _end)
    try:
        good = run_parts(job)
    finally:
        signal.signal(signal.SIGTERM, before)
    print(job.folder)
    return 0 if good else 1


def _end(number: int, frame: FrameType | None) -> None:
    """Leave as after an error, so that the running part is ended too."""
    raise SystemExit(128 + number)


def folder_name(device: str) -> str:
    """The name of a machine's folder: its accelerator and its number of cores."""
    name = next(str(a.get("name", device)) for a in machine.fingerprint()["accelerators"] if a["device"] == device)
    return f"{re.sub('[^a-z0-9]+', '-', name.lower()).strip('-')}-{machine.usable_cores()}-core"


def run_parts(job: Job, parts: Sequence[Part] = PARTS) -> bool:
    """Run them in order; returns whether each ended in order. ``run.jsonl`` says how each ended."""
    log = Lines(job.folder / "run.jsonl")
    good = True
    for position, part in enumerate(parts):
        seconds = seconds_of(position, job.left, parts)
        if seconds <= 0:
            job.say(f"{part.name}: no time is left")
            log.fail({"part": part.name}, "no time was left")
            good = False
            continue
        job.say(f"--- {part.name}, {seconds:.0f} s: {part.brings}")
        begun = job.clock()
        error = _run(part, job, seconds)
        took = job.clock() - begun
        if error is None:
            log.add({"part": part.name}, seconds=took)
        else:
            job.say(f"{part.name} did not end in order: {error}")
            log.fail({"part": part.name}, f"after {took:.0f} s: {error}")
            good = False
    return good


def _run(part: Part, job: Job, seconds: float) -> str | None:
    """Run one part in a process of its own; None where it ended in order, else what went wrong."""
    command = [
        sys.executable, "-W", "default", "-m", "placer.calibration.gpu_run.child", part.name, "--folder",
        str(job.folder), "--device", job.device, "--seconds", f"{seconds:.2f}",
        *(text for name in job.only for text in ("--only", name)),
    ]  # fmt: skip
    job.folder.mkdir(parents=True, exist_ok=True)
    limit = min(STARTING + seconds + GRACE, job.left)
    try:
        run_limited(command, seconds=limit, log=job.folder / f"{part.name}.log")
    except HungError:
        return f"it was ended after {limit:.0f} s"
    except CalibrationError as error:
        return str(error)
    return None
