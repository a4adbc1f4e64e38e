"""How good a calibration is on a machine with a busy neighbour: an experiment that anybody can repeat.

    python -m placer.calibration.validation.beside_load FOLDER [--loads 0,50,100] [--before PYTHONPATH] [--round 1]

For each load a process keeps one core busy for that share of the time, in spells of one to five seconds. Beside it the
machine is calibrated: with the code of ``--before``, where that names another source tree, and with this code, one
right after the other beside the same spells. Then the quick suite is timed twice, every step of it, and both profiles
are scored against the same times. FOLDER gets a file per load and round, and a load takes five minutes. What is there
already is shown and not measured again.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import torch

from placer import machine
from placer.calibration.measuring.timing import percentile
from placer.calibration.suite import entries
from placer.calibration.validation import record
from placer.calibration.validation.cells import Effort, cells_of, measured_cells
from placer.calibration.validation.record import Cell, Report
from placer.calibration.validation.scores import score
from placer.calibration.validation.table import Table, show
from placer.errors import CalibrationError
from placer.workload import same_randomness

#: Seconds that the neighbour works in one go, at least and at most.
SHORTEST, LONGEST = 1.0, 5.0
#: Seconds of a calibration, and of timing one step on each of the visits.
BUDGET, SECONDS_PER_CELL, VISITS = 60.0, 0.4, 2
#: The two codes that are compared.
BEFORE, NOW = "before", "now"


def keep_busy(share: float, seed: int) -> None:
    """Work and rest by turns until the process that started this one is gone; say when the first turn begins."""
    drawn, parent = random.Random(seed), os.getppid()
    print("busy", flush=True)
    while True:
        for busy, part in ((True, share), (False, 1.0 - share)):
            end = time.perf_counter() + 2.0 * part * drawn.uniform(SHORTEST, LONGEST)
            while time.perf_counter() < end:
                if os.getppid() != parent:
                    return
                if busy:
                    sum(range(1_000_000))
                else:
                    time.sleep(0.05)


@contextmanager
def neighbour(share: float, seed: int) -> Iterator[None]:
    """A process beside this one that is busy for ``share`` of the time while the body runs."""
    code = f"from placer.calibration.validation.beside_load import keep_busy; keep_busy({share}, {seed})"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) if share > 0.0 else None
    try:
        if process is not None and process.stdout is not None:
            process.stdout.readline()
        yield
    finally:
        if process is not None:
            process.kill()
            process.communicate()


def run_placer(arguments: Sequence[str], path: str | None, folder: Path) -> None:
    """Run ``placer`` in ``folder`` with the code of ``path`` (None: this code), in a process that knows no profile.

    Raises CalibrationError where that fails.
    """
    environment = {**os.environ, "PLACER_HOME": str(folder.absolute() / "home"), "PYTHONSAFEPATH": "1"}
    if path is not None:
        environment["PYTHONPATH"] = path
    found = subprocess.run(
        [sys.executable, "-m", "placer", *arguments], env=environment, cwd=folder, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    if found.returncode != 0:
        raise CalibrationError(f"placer {arguments[0]} failed: {found.stderr.strip()[-500:]}")


def timed_suite() -> Report:
    """Every step of the quick suite on the CPU, on two visits."""
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    report = Report(created=now, fingerprint=machine.fingerprint(), profile="beside load")
    place = [("cpu", torch.get_num_threads())]
    effort = Effort(seconds=SECONDS_PER_CELL, isolated=False)
    with same_randomness(["cpu"]):
        for _ in range(VISITS):
            for entry in entries("quick"):
                if not entry.missing():
                    known = {cell.key: cell for cell in report.cells}
                    cells = [known.get(cell.key, cell) for cell in cells_of(entry, place)]
                    report = report.with_cells(measured_cells(entry, cells, "cpu", effort))
    return report


def measure(load: int, seed: int, codes: Mapping[str, str | None], work: Path) -> None:
    """Calibrate with each of ``codes`` beside the same load, then time the suite beside it, into ``work``."""
    work.mkdir(parents=True, exist_ok=True)
    for name, path in codes.items():
        print(f"load {load} %: calibrating, {name}", file=sys.stderr, flush=True)
        with neighbour(load / 100.0, seed):
            run_placer(["calibrate", "--budget", str(BUDGET), "--output", f"{name}.json", "--quiet"], path, work)
    print(f"load {load} %: timing the suite", file=sys.stderr, flush=True)
    with neighbour(load / 100.0, seed + 1):
        record.save(timed_suite(), work / "timed.json")


def compared(work: Path, codes: Mapping[str, str | None]) -> dict[str, Any]:
    """The cells that were timed in ``work``: seconds of each visit, and by each code's profile (seconds, low, high)."""
    timed = record.load(work / "timed.json")
    cells: dict[record.Key, dict[str, Any]] = {
        cell.key: {"cell": cell.key[:3], "visits": cell.visits} for cell in timed.cells if cell.visits
    }
    for name, path in codes.items():
        asked = ("--against", "timed.json", "--profile", f"{name}.json", "--output", f"priced-{name}.json")
        (work / f"priced-{name}.json").unlink(missing_ok=True)  # of a call that was interrupted
        run_placer(["validate", *asked], path, work)
        for cell in record.load(work / f"priced-{name}.json").cells:
            if cell.key in cells:
                cells[cell.key][name] = (cell.predicted, cell.low, cell.high)
    facts = {name: timed.fingerprint[name] for name in ("cpu", "cores", "torch")}
    return {"created": timed.created, **facts, "cells": list(cells.values())}


def rows_of(load: int, cells: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """The table's rows of one load: each code's, and how far two visits are apart."""
    apart = sorted(max(cell["visits"]) / min(cell["visits"]) - 1.0 for cell in cells)
    again = [f"{100 * percentile(apart, share):.1f}" for share in (0.5, 0.9)]
    rows = []
    for name in (BEFORE, NOW):
        result = score(_scored(cell, cell[name]) for cell in cells if name in cell)
        if result is not None:
            figures = [f"{100 * share:.1f}" for share in (result.median_error, result.p90_error, result.inside)]
            rows.append((f"{load} %", name, str(result.cells), *figures, f"{result.bias:+.2f}", *again))
    return rows


def _scored(cell: Mapping[str, Any], prediction: Sequence[float | None]) -> Cell:
    network, batch, mode = cell["cell"]
    predicted, low, high = prediction
    return replace(
        Cell(network, "", batch, mode, "cpu", 1), measured=statistics.fmean(cell["visits"]), predicted=predicted,
        low=low, high=high,
    )  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--loads", default="0,50,100", help="shares of one core that are busy, in percent")
    parser.add_argument("--before", help="the PYTHONPATH of another source tree to compare with")
    parser.add_argument("--round", type=int, default=1, help="measure once more, beside other spells")
    parser.add_argument("--measure-only", action="store_true", help="predict and show in a later call")
    options = parser.parse_args(arguments)
    codes: dict[str, str | None] = {} if options.before is None else {BEFORE: options.before}
    codes[NOW] = None
    rows: list[tuple[str, ...]] = []
    for load in map(int, options.loads.split(",")):
        name = f"load-{load}-{options.round}"
        work, done = options.folder / "work" / name, options.folder / f"{name}.json"
        if not (done.exists() or (work / "timed.json").exists()):
            measure(load, 1000 * options.round + load, codes, work)
        if options.measure_only:
            continue
        if not done.exists():
            done.write_text(json.dumps(compared(work, codes)) + "\n")
        rounds = sorted(options.folder.glob(f"load-{load}-*.json"))
        rows += rows_of(load, [cell for path in rounds for cell in json.loads(path.read_text())["cells"]])
    names = ("busy", "code", "cells", "median error %", "p90", "in interval %", "log bias", "rounds differ %", "p90")
    if rows:
        show([Table("Beside a busy process", names, tuple(rows))], sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
