"""Fits the cycles of the table of ops to records of single ops, and writes them into it.

    python -m placer.calibration.lab.published.cycles RECORD...

Of each op, every second size is fitted to; the others are held out (``TimedCall.held_out``). Rows of which the records
tell nothing stay as they are.
"""

from __future__ import annotations

import csv
import io
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from placer.calibration.lab.op_record import TimedCall, read, timed_calls
from placer.files import replace_file
from placer.pricing import CpuSpeeds, counted, nearest_profile
from placer.pricing.ops import COUNTED, OPS_FILE, QUANTIZED
from placer.pricing.physics import STARTING, cores_of
from placer.pricing.speeds import beside

Array = NDArray[np.float64]

#: Cycles that are tried: for each unit, and for each start, of which an op may have thousands.
EACH = np.array([0.0, *np.exp(np.arange(np.log(0.002), np.log(3e5), 0.12))])
BEGUN = np.array([0.0, *np.exp(np.arange(np.log(10.0), np.log(2e4), 0.5))])
#: Seconds from which on a call counts in full, the weight of shorter ones, and the shortest that teach anything.
FULL, SHORT, SHORTEST = 1e-4, 0.15, 3e-5
#: Calls tell what a unit takes where they are of so many, or where units differ by such a factor: else what is seen is
#: the call, or grows with a value. Of starts, which are few, calls tell only where they differ.
MANY, VARIED = 1000.0, 2.0


class Samples(NamedTuple):
    """What was timed of one op, a number for each call: units, starts, cores, seconds of memory, start, and all."""

    units: Array
    starts: Array
    cores: Array
    memory: Array
    start: Array
    seconds: Array


class Cycles(NamedTuple):
    """Of one op: cycles of a core for each unit, and for each start."""

    each: float
    begun: float


def fit_cycles(*records: Path) -> dict[str, Cycles]:
    """The cycles of every op that the records tell some of, by the name of its row."""
    rows: dict[str, list[tuple[float, ...]]] = defaultdict(list)
    for record in records:
        for name, row in _rows(record):
            rows[name].append(row)
    fitted = {name: fit_one(Samples(*np.array(some).T)) for name, some in rows.items()}
    return {name: cycles for name, cycles in fitted.items() if cycles is not None}


def _rows(record: Path) -> Iterator[tuple[str, tuple[float, ...]]]:
    """The op and what ``Samples`` holds of each call that counts."""
    facts = next(row["environment"] for row in read(record) if "environment" in row)
    speeds_of = cache(partial(beside, nearest_profile(facts)))
    for timed in timed_calls(record):
        if timed.held_out or timed.seconds < SHORTEST or timed.work.row.kind in ("", COUNTED, QUANTIZED):
            continue
        op = counted(timed.call, timed.work.row, timed.work.shape, timed.work.flops).op
        yield op.op, sample_of(timed, speeds_of(timed.speeds, timed.threads))


def sample_of(timed: TimedCall, speeds: CpuSpeeds) -> tuple[float, ...]:
    """The numbers of ``Samples`` of one call."""
    work, threads = timed.work, timed.threads
    does = counted(timed.call, work.row, work.shape, work.flops)
    return (
        does.units * does.wide,
        does.starts * does.wide,
        cores_of(work, threads) if does.op.shared else 1.0,
        work.bytes / (speeds.bytes_per_second if threads > 1 else speeds.core_bytes_per_second),
        speeds.dispatch_seconds,
        timed.seconds,
    )


def fit_one(samples: Samples) -> Cycles | None:
    """The cycles that are nearest to what was timed, by the mean of |log(ratio)|; None where calls do not tell any."""
    if samples.units.max() < MANY and not _vary(samples.units):
        return None
    weights = np.where(samples.seconds >= FULL, 1.0, SHORT)
    tried: list[tuple[float, Cycles]] = []
    for begun in BEGUN if _vary(samples.starts) else BEGUN[:1]:
        cycles = EACH[:, None] * samples.units + begun * samples.starts
        priced = samples.start + np.maximum(cycles * samples.start / STARTING / samples.cores, samples.memory)
        errors = (np.abs(np.log(priced / samples.seconds)) * weights).sum(1) / weights.sum()
        best = int(errors.argmin())
        tried.append((float(errors[best]), Cycles(float(EACH[best]), float(begun))))
    return min(tried, key=lambda pair: round(pair[0], 3))[1]


def _vary(amounts_of_calls: Array) -> bool:
    return bool(amounts_of_calls.max() >= VARIED * max(amounts_of_calls.min(), 1.0))


def written(table: str, fitted: Mapping[str, Cycles]) -> str:
    """The text of the table with these cycles."""
    lines = csv.DictReader(io.StringIO(table, newline=""))
    result = io.StringIO()
    writer = csv.DictWriter(result, lines.fieldnames or (), lineterminator="\n")
    writer.writeheader()
    for row in lines:
        if row["op"] in fitted:
            each, begun = fitted[row["op"]]
            row |= {"cycles": f"{each:.3g}", "start_cycles": f"{begun:.3g}" if begun else ""}
        writer.writerow(row)
    return result.getvalue()


if __name__ == "__main__":
    replace_file(OPS_FILE, written(OPS_FILE.read_text(encoding="utf-8"), fit_cycles(*map(Path, sys.argv[1:]))).encode())
