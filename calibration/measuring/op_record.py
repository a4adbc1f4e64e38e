"""A record of single ops: every call of a step with its seconds, as lines of JSON."""

from __future__ import annotations

import json
import lzma
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from placer.machine import MeasuredSpeeds
from placer.pricing import Context, Work, describe
from placer.tracing import OpCall, TensorSpec


@dataclass(frozen=True)
class TimedCall:
    """One distinct call of a step: ``name`` of torch's op and ``number`` of its size, the call, and what it took.

    ``count``: equal calls of the step, whose middle counts. ``speeds``: the machine's when it was timed.
    """

    name: str
    number: int
    threads: int
    call: OpCall
    work: Work
    seconds: float
    count: int
    speeds: MeasuredSpeeds

    @property
    def held_out(self) -> bool:
        """Whether the size is one of those that the table of ops is not fitted to: every second one."""
        return self.number % 2 == 1


def written(call: OpCall, seconds: float) -> list[Any]:
    """A call and its seconds as JSON can hold them."""
    specs = [[[list(t.shape), list(t.stride), t.dtype] for t in some] for some in (call.inputs, call.outputs)]
    return [call.op, *specs, call.args, call.phase, call.in_place, call.kept_bytes > 0, round(seconds, 9)]


def read(path: Path) -> list[dict[str, Any]]:
    """The lines of a record, compressed or not."""
    raw = path.read_bytes()
    text = lzma.decompress(raw) if path.suffix == ".xz" else raw
    return [json.loads(line) for line in text.splitlines()]


def timed_calls(path: Path) -> Iterator[TimedCall]:
    """Every distinct call of every step of a record. Before the first reading of the speeds, their middle holds."""
    rows = read(path)
    readings = [MeasuredSpeeds(**row["speeds"]) for row in rows if "speeds" in row]
    speeds = MeasuredSpeeds(*(statistics.median(values) for values in zip(*map(_numbers, readings), strict=True)))
    for row in rows:
        if "speeds" in row:
            speeds = MeasuredSpeeds(**row["speeds"])
        if "calls" not in row:
            continue
        footprint, recording, kinds, evicted = row["context"]
        context = Context(footprint, recording, kinds=max(kinds, 1), evicted=evicted)
        equal: dict[str, list[float]] = {}
        for *call, seconds in row["calls"]:
            equal.setdefault(json.dumps(call), []).append(seconds)
        for text, times in equal.items():
            call = _call(*json.loads(text))
            yield TimedCall(
                row["name"], row["number"], row["threads"], call, describe(call, context), statistics.median(times),
                len(times), speeds,
            )  # fmt: skip


def _numbers(speeds: MeasuredSpeeds) -> tuple[float, float, float]:
    return speeds.small_step_seconds, speeds.flops_per_second, speeds.bytes_per_second


def _call(op: str, inputs: Any, outputs: Any, args: Any, phase: Any, in_place: bool, kept: bool) -> OpCall:
    made, results = (tuple(TensorSpec(*map(_hashable, spec)) for spec in specs) for specs in (inputs, outputs))
    return OpCall(op, made, results, _hashable(args), phase, in_place=in_place, kept_bytes=int(kept))


def _hashable(value: Any) -> Any:
    return tuple(_hashable(each) for each in value) if isinstance(value, list) else value
