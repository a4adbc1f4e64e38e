"""Fits the cycles of the table of ops to records of single ops.

    python -m placer.calibration.fitting.op_cycles RECORD... > placer/pricing/op_cycles.csv

Of each op, every second size is fitted to; the others are held out (``TimedCall.held_out``).
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from placer.calibration.measuring.op_record import read, timed_calls
from placer.pricing import STARTING, amounts, beside, cores_of, nearest_profile, op_lines, width

Array = NDArray[np.float64]

#: Cycles that are tried: for each unit, and for each start, of which an op may have thousands.
EACH = np.array([0.0, *np.exp(np.arange(np.log(0.002), np.log(3e5), 0.12))])
BEGUN = np.array([0.0, *np.exp(np.arange(np.log(10.0), np.log(2e4), 0.5))])
#: Seconds from which on a call counts in full, the weight of shorter ones, and the shortest that teach anything.
FULL, SHORT, SHORTEST = 1e-4, 0.15, 3e-5
#: Calls tell what a unit takes where they are of so many, or where units differ by such a factor: else what is seen is
#: the call, or grows with a value. Of starts, which are few, calls tell only where they differ.
MANY, VARIED = 1000.0, 2.0


class Cycles(NamedTuple):
    """Of one op: for each unit, for each start, and whether torch shares it among cores."""

    each: float
    begun: float
    shared: bool


class Samples(NamedTuple):
    """What was timed of one op, a number for each call: units, starts, cores, seconds of memory, start, and all."""

    units: Array
    starts: Array
    cores: Array
    memory: Array
    start: Array
    seconds: Array


def fit_cycles(*records: Path) -> dict[str, Cycles]:
    """The cycles of every op of the table: its own, those in the middle of its line where it was not timed, or of its
    kind."""
    rows: dict[str, list[tuple[float, ...]]] = defaultdict(list)
    for record in records:
        for name, row in _rows(record):
            rows[name].append(row)
    fitted = {name: fit_one(Samples(*np.array(some).T)) for name, some in rows.items()}
    own = {name: found for name, found in fitted.items() if found is not None}
    every: dict[str, Cycles] = {}
    for lines in op_lines().values():
        of_kind = [own[name] for names in lines for name in names if name in own]
        for names in lines:
            of_line = [own[name] for name in names if name in own]
            for name in names:
                every[name] = own.get(name) or _middle(of_line or of_kind)
    return every


def _rows(record: Path) -> Iterator[tuple[str, tuple[float, ...]]]:
    """The name and what ``Samples`` holds of each call that counts."""
    facts = next(row["environment"] for row in read(record) if "environment" in row)
    nearest = nearest_profile(facts)
    speeds_of = cache(partial(beside, nearest))
    for timed in timed_calls(record):
        found = amounts(timed.call, timed.work.flops)
        if found is None or timed.held_out or timed.seconds < SHORTEST:
            continue
        name, _, _, units, starts = found
        speeds, wide = speeds_of(timed.speeds, timed.threads), width(timed.call)
        yield name, (
            units * wide, starts * wide, cores_of(timed.work, timed.threads),
            timed.work.bytes / (speeds.bytes_per_second if timed.threads > 1 else speeds.core_bytes_per_second),
            speeds.dispatch_seconds, timed.seconds,
        )  # fmt: skip


def _vary(amounts_of_calls: Array) -> bool:
    return bool(amounts_of_calls.max() >= VARIED * max(amounts_of_calls.min(), 1.0))


def _middle(some: Sequence[Cycles]) -> Cycles:
    ordered = sorted(some, key=lambda found: (found.each, found.begun))
    return ordered[len(ordered) // 2] if ordered else Cycles(1.0, 0.0, True)


def fit_one(samples: Samples) -> Cycles | None:
    """The cycles that are nearest to what was timed, by the mean of |log(ratio)|; None where calls do not tell any."""
    if samples.units.max() < MANY and not _vary(samples.units):
        return None
    weights = np.where(samples.seconds >= FULL, 1.0, SHORT)
    tried: list[tuple[float, Cycles]] = []
    for shared in (True, False):
        for begun in BEGUN if _vary(samples.starts) else BEGUN[:1]:
            cycles = EACH[:, None] * samples.units + begun * samples.starts
            computing = cycles * samples.start / STARTING / (samples.cores if shared else 1.0)
            priced = samples.start + np.maximum(computing, samples.memory)
            errors = (np.abs(np.log(priced / samples.seconds)) * weights).sum(1) / weights.sum()
            best = int(errors.argmin())
            tried.append((float(errors[best]), Cycles(float(EACH[best]), float(begun), shared)))
    return min(tried, key=lambda pair: round(pair[0], 3))[1]


def table_of(cycles: Mapping[str, Cycles]) -> str:
    """The text of ``op_cycles.csv``."""
    rows = [
        f"{name},{each:.3g},{begun:.3g},{'yes' if shared else 'no'}" for name, (each, begun, shared) in cycles.items()
    ]
    return "\n".join(["op,cycles,start_cycles,shared", *rows]) + "\n"


if __name__ == "__main__":
    sys.stdout.write(table_of(fit_cycles(*map(Path, sys.argv[1:]))))
