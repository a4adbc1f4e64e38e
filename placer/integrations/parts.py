"""An iteration made of several kinds of steps: each is priced by itself, their times are added up.

A training loop may run one step often and another seldom, as reinforcement learning does: its networks act in the
environment, then learn.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from placer.decision import Decision, decide
from placer.explanation import DeviceRow, Explanation
from placer.units import format_seconds


@dataclass(frozen=True)
class Part:
    """One kind of step: ``count`` of them are in an iteration, ``seconds`` (by device) is the time of one.

    ``explanation`` is what ``placer.explain`` says of one.
    """

    name: str
    count: float
    explanation: Explanation

    @property
    def seconds(self) -> dict[str, float]:
        return {device: row.step_seconds for device, row in self.explanation.devices.items()}


@dataclass(frozen=True)
class IterationAnswer:
    """Where an iteration finishes first. ``seconds`` are those of one iteration, by device.

    ``confidence`` is the probability that ``device`` is the faster one, ``tie`` says that it hardly matters. ``notes``
    name what is a guess. ``provenance`` is what the numbers of each device rest on.
    """

    decision: Decision
    parts: tuple[Part, ...]
    seconds: Mapping[str, float]
    provenance: Mapping[str, str]
    notes: tuple[str, ...]

    @property
    def device(self) -> str:
        return self.decision.device

    @property
    def confidence(self) -> float | None:
        return self.decision.confidence

    @property
    def reason(self) -> str:
        return self.decision.reason

    @property
    def tie(self) -> bool:
        return self.decision.tie

    def __str__(self) -> str:
        names = tuple(self.seconds)
        rows = [("part", "count", *names)]
        for part in self.parts:
            times = (format_seconds(part.count * part.seconds[name]) for name in names)
            rows.append((part.name, f"{part.count:,g}", *times))
        rows.append(("an iteration", "", *(format_seconds(self.seconds[name]) for name in names)))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        table = (
            "  ".join((row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:]))).rstrip() for row in rows
        )
        return "\n".join((self.reason, "", *table))


def combined(parts: Sequence[Part], iterations: int | None = None) -> IterationAnswer:
    """The choice for an iteration of ``parts``, all of them priced on the same devices.

    ``iterations``: how many follow; one-time costs are spread over them. None: a long run. Errors of the parts are
    taken to go the same way, which gives the widest interval: the ends of the 90 % intervals are added up.

    Raises:
        ValueError: no parts.
    """
    if not parts:
        raise ValueError("an iteration needs at least one part")
    threads = parts[0].explanation.decision.threads
    devices = {name: _Iteration.of(name, threads, parts) for name in parts[0].explanation.devices}
    decision = decide(devices, iterations)
    first = parts[0].explanation.devices
    return IterationAnswer(
        decision=Decision(**{**vars(decision), "reason": _in_iterations(decision.reason)}),
        parts=tuple(parts),
        seconds={name: row.step_seconds for name, row in devices.items()},
        provenance={name: row.provenance for name, row in first.items()},
        notes=tuple(dict.fromkeys(note for part in parts for note in part.explanation.notes)),
    )


@dataclass(frozen=True)
class _Iteration:
    """What a decision asks of a device: the parts' seconds added up, and the largest of their memory and first steps.

    Parts share the context, the libraries and the weights.
    """

    device: str
    threads: int
    step_seconds: float
    low: float
    high: float
    one_time_seconds: float
    components: Mapping[str, float]
    peak_memory_bytes: int
    available_memory_bytes: int | None
    fits: bool
    bounded_by: str | None

    @classmethod
    def of(cls, device: str, threads: int, parts: Sequence[Part]) -> _Iteration:
        rows: list[tuple[float, DeviceRow]] = [(part.count, part.explanation.devices[device]) for part in parts]
        largest = max(rows, key=lambda pair: pair[0] * pair[1].step_seconds)[1]
        most = max((row for _, row in rows), key=lambda row: row.peak_memory_bytes)
        components: dict[str, float] = {}
        for count, row in rows:
            for name, seconds in row.components.items():
                components[name] = components.get(name, 0.0) + count * seconds
        return cls(
            device=device,
            threads=threads,
            step_seconds=sum(count * row.step_seconds for count, row in rows),
            low=sum(count * row.low for count, row in rows),
            high=sum(count * row.high for count, row in rows),
            one_time_seconds=max(row.one_time_seconds for _, row in rows),
            components=components,
            peak_memory_bytes=most.peak_memory_bytes,
            available_memory_bytes=most.available_memory_bytes,
            fits=all(row.fits for _, row in rows),
            bounded_by=largest.bounded_by,
        )


def _in_iterations(reason: str) -> str:
    """A decision's sentence about steps, said of iterations."""
    return re.sub(r"\bsteps\b", "iterations", re.sub(r"\ba step\b", "an iteration", reason))
