"""How good a calibration is on a machine with a busy neighbour: an experiment that anybody can repeat.

    python -m placer.calibration.validation.beside_load FOLDER [--loads 0,50,100] [--before PYTHONPATH] [--suite quick]

For each load a process keeps one core busy for that share of the time, in spells of one to five seconds. Beside it the
machine is calibrated: with this code and, where ``--before`` names another source tree, with that code too, one right
after the other. Then the suite is timed twice, every step of it, and both profiles are scored against the same times.
FOLDER gets a file per load; loads that are there already are shown and not measured again.
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
from placer.calibration.validation import record
from placer.calibration.validation.cells import Effort, cells_of, measured_cells
from placer.calibration.validation.held_out import networks_of
from placer.calibration.validation.record import Cell, Report
from placer.calibration.validation.scores import score
from placer.calibration.validation.table import Table, show
from placer.errors import CalibrationError
from placer.workload import same_randomness

#: Seconds that the neighbour works or rests in one go, at least and at most.
SHORTEST, LONGEST = 1.0, 5.0
#: Seconds of a calibration, and of timing one step on each of the visits.
BUDGET, SECONDS_PER_CELL, VISITS = 60.0, 0.4, 2
#: The two codes that are compared.
BEFORE, NOW = "before", "now"


def keep_busy(share: float, seed: int) -> None:
    """Work for ``share`` of the time, in random spells, until the process that started this one is gone."""
    drawn, parent = random.Random(seed), os.getppid()
    while True:
        end, busy = time.perf_counter() + drawn.uniform(SHORTEST, LONGEST), drawn.random() < share
        while time.perf_counter() < end:
            if os.getppid() != parent:
                return
            sum(range(1_000_000)) if busy else time.sleep(0.05)


@contextmanager
def neighbour(share: float, seed: int) -> Iterator[None]:
    """A process beside this one that is busy for ``share`` of the time while the body runs."""
    code = f"from {__name__ if __name__ != '__main__' else _MODULE} import keep_busy; keep_busy({share}, {seed})"
    process = subprocess.Popen([sys.executable, "-c", code]) if share > 0.0 else None
    try:
        yield
    finally:
        if process is not None:
            process.kill()
            process.wait()


_MODULE = "placer.calibration.validation.beside_load"


def run_placer(arguments: Sequence[str], path: str | None, folder: Path) -> None:
    """Run ``placer`` with the code of ``path`` (None: this code) in a process of its own, out of reach of profiles.

    Raises CalibrationError where that fails.
    """
    environment = {**os.environ, "PLACER_HOME": str(folder / "home"), "PYTHONSAFEPATH": "1"}
    if path is not None:
        environment["PYTHONPATH"] = path
    found = subprocess.run(
        [sys.executable, "-m", "placer", *arguments], env=environment, cwd=folder, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    if found.returncode != 0:
        raise CalibrationError(f"placer {arguments[0]} failed: {found.stderr.strip()[-500:]}")


def timed_suite(suite: str, say: Any) -> Report:
    """Every step of the suite on the CPU, on two visits."""
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    report = Report(created=now, fingerprint=machine.fingerprint(), profile="beside load")
    place = [("cpu", torch.get_num_threads())]
    effort = Effort(seconds=SECONDS_PER_CELL, isolated=False)
    networks = [entry for entry in networks_of(suite) if not entry.missing()]
    with same_randomness(["cpu"]):
        for visit in range(VISITS):
            say(f"  timing the suite, visit {visit + 1}")
            for entry in networks:
                known = {cell.key: cell for cell in report.cells}
                cells = [known.get(cell.key, cell) for cell in cells_of(entry, place)]
                report = report.with_cells(measured_cells(entry, cells, "cpu", effort))
    return report


def measure(load: int, codes: Mapping[str, str | None], suite: str, folder: Path, say: Any) -> dict[str, Any]:
    """Calibrate with each of ``codes`` beside the load, time the suite beside it, and price it with each profile."""
    work = folder / f"work-{load}"
    work.mkdir(parents=True, exist_ok=True)
    with neighbour(load / 100.0, seed=load):
        for name, path in codes.items():
            say(f"load {load} %: calibrating, {name}")
            run_placer(["calibrate", "--budget", str(BUDGET), "--output", f"{name}.json", "--quiet"], path, work)
        timed = timed_suite(suite, say)
    record.save(timed, work / "timed.json")
    return {"load": load, "created": timed.created, "suite": suite,
            "cpu": timed.fingerprint["cpu"], "threads": torch.get_num_threads(),
            "cells": compared(work, codes)}  # fmt: skip


def compared(work: Path, codes: Mapping[str, str | None]) -> list[dict[str, Any]]:
    """The cells that were timed in ``work``: seconds of each visit, and by each code's profile (seconds, low, high)."""
    cells = {
        cell.key: {"cell": cell.key[:3], "visits": cell.visits}
        for cell in record.load(work / "timed.json").cells if cell.visits
    }  # fmt: skip
    for name, path in codes.items():
        priced = work / f"priced-{name}.json"
        run_placer(["validate", "--against", "timed.json", "--profile", f"{name}.json", "--output", priced.name],
                   path, work)  # fmt: skip
        for cell in record.load(priced).cells:
            if cell.key in cells:
                cells[cell.key][name] = (cell.predicted, cell.low, cell.high)
    return list(cells.values())


def rows_of(found: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """The table's rows of one load: a row for each code, and the machine's own repeatability."""
    apart = sorted(max(cell["visits"]) / min(cell["visits"]) - 1.0 for cell in found["cells"])
    again = [f"{100 * percentile(apart, share):.1f}" for share in (0.5, 0.9)]
    rows = []
    for name in (BEFORE, NOW):
        cells = [_scored(cell, cell[name]) for cell in found["cells"] if name in cell]
        result = score(cells)
        if result is not None:
            figures = [f"{100 * share:.1f}" for share in (result.median_error, result.p90_error, result.inside)]
            rows.append((f"{found['load']} %", name, *figures, f"{result.bias:+.2f}", *again))
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
    parser.add_argument("--suite", default="quick")
    options = parser.parse_args(arguments)
    codes: dict[str, str | None] = {} if options.before is None else {BEFORE: options.before}
    codes[NOW] = None

    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    rows: list[tuple[str, ...]] = []
    for load in map(int, options.loads.split(",")):
        path = options.folder / f"load-{load}.json"
        if not path.exists():
            found = measure(load, codes, options.suite, options.folder, say)
            path.write_text(json.dumps(found) + "\n")
        rows += rows_of(json.loads(path.read_text()))
    names = ("busy", "code", "median error %", "p90", "in interval", "log bias", "visits apart %", "p90")
    show([Table("Beside a busy process", names, tuple(rows))], sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
