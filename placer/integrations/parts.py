"""An iteration made of several kinds of steps: each is priced by itself, their times are added up.

A training loop may run one step often and another seldom, as reinforcement learning does: its networks act in the
environment, then learn.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from placer.decision import Decision, decide, total
from placer.explanation import Explanation
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

    ``iterations``: how many follow; one-time costs are spread over them. None: a long run.

    Raises:
        ValueError: no parts.
    """
    if not parts:
        raise ValueError("an iteration needs at least one part")
    threads = parts[0].explanation.decision.threads
    devices = {
        name: total(name, threads, [(part.count, part.explanation.devices[name]) for part in parts])
        for name in parts[0].explanation.devices
    }
    decision = decide(devices, iterations)
    first = parts[0].explanation.devices
    return IterationAnswer(
        decision=replace(decision, reason=_in_iterations(decision.reason)),
        parts=tuple(parts),
        seconds={name: row.step_seconds for name, row in devices.items()},
        provenance={name: row.provenance for name, row in first.items()},
        notes=tuple(dict.fromkeys(note for part in parts for note in part.explanation.notes)),
    )


def _in_iterations(reason: str) -> str:
    """A decision's sentence about steps, said of iterations."""
    return re.sub(r"\bsteps\b", "iterations", re.sub(r"\ba step\b", "an iteration", reason))
