"""A record of single ops: every call of a step with its seconds, as lines of JSON."""

from __future__ import annotations

import json
import lzma
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from placer.machine import MeasuredSpeeds
from placer.pricing import Context, Work, describe
from placer.tracing import OpCall, TensorSpec

#: What virtual cores, two of which may be one, make of each other: so many are as fast as so many to this power; and
#: seconds to start a loop on them.
SCALING, REGION = 0.75, 5e-6


@dataclass(frozen=True)
class TimedCall:
    """One distinct call of a step, its threads, and what it took.

    ``number`` is that of the size. ``count``: equal calls of the step, whose middle counts. ``speeds``: the machine's
    when it was timed.
    """

    number: int
    threads: int
    call: OpCall
    work: Work
    seconds: float
    count: int
    speeds: MeasuredSpeeds

    @property
    def held_out(self) -> bool:
        """Whether the size is one of those that the table of ops was not fitted to: every second one."""
        return self.number % 2 == 1


def distinct(
    calls: Iterable[tuple[OpCall, float]], number: int, threads: int, context: Context, speeds: MeasuredSpeeds
) -> Iterator[TimedCall]:
    """The different calls of a step, each with the middle of its seconds."""
    equal: defaultdict[tuple[OpCall, str], list[float]] = defaultdict(list)
    for call, seconds in calls:
        equal[call, repr(call.args)].append(seconds)  # 1 and 1.0 are other arguments
    for (call, _), times in equal.items():
        work = describe(call, context)
        yield TimedCall(number, threads, call, work, statistics.median(times), len(times), speeds)


def read(path: Path) -> list[dict[str, Any]]:
    """The lines of a record, compressed or not."""
    raw = path.read_bytes()
    text = lzma.decompress(raw) if path.suffix == ".xz" else raw
    return [json.loads(line) for line in text.splitlines()]


def timed_calls(path: Path) -> Iterator[TimedCall]:
    """Every distinct call of every step of a record. Before the first reading of the speeds, their middle holds."""
    rows = read(path)
    most = max((row["threads"] for row in rows if "calls" in row), default=1)
    readings = [_speeds(row["speeds"], most) for row in rows if "speeds" in row]
    each = zip(*(astuple(reading)[1:] for reading in readings), strict=True)
    speeds = MeasuredSpeeds(most, *map(statistics.median, each))
    for row in rows:
        if "speeds" in row:
            speeds = _speeds(row["speeds"], most)
        if "calls" in row:
            footprint, recording, kinds, evicted = row["context"]
            context = Context(footprint, recording, kinds=max(kinds, 1), evicted=evicted)
            calls = [(_call(*call), seconds) for *call, seconds in row["calls"]]
            yield from distinct(calls, row["number"], row["threads"], context, speeds)


def _speeds(found: Mapping[str, float], threads: int) -> MeasuredSpeeds:
    """A reading of the speeds; earlier records have those of all ``threads`` alone."""
    share = threads**SCALING
    usual = {
        "core_flops_per_second": found["flops_per_second"] / share,
        "core_bytes_per_second": found["bytes_per_second"] / share,
        "region_seconds": REGION if threads > 1 else 0.0,
    }
    return MeasuredSpeeds(**{"threads": threads, **usual, **found})


def _call(op: str, inputs: Any, outputs: Any, args: Any, phase: Any, in_place: bool, kept: bool) -> OpCall:
    made, results = _tensors(inputs), _tensors(outputs)
    return OpCall(op, made, results, _hashable(args), phase, in_place=in_place, kept_bytes=int(kept))


def _tensors(specs: Any) -> tuple[TensorSpec, ...]:
    return tuple(TensorSpec(*map(_hashable, spec)) for spec in specs)


def _hashable(value: Any) -> Any:
    return tuple(_hashable(each) for each in value) if isinstance(value, list) else value
