"""Probes that could not be measured, and what a reader of the profile should know of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from placer.profile import json_values as checked

HUNG = "it did not come back"
TOO_LARGE = "it did not fit in memory"
#: The process was ended from outside, perhaps by this probe.
PROCESS_ENDED = "the process ended while it ran"


@dataclass(frozen=True)
class Failure:
    """A probe that could not be measured on one device at one number of CPU threads, and why."""

    device: str
    threads: int
    family: str
    name: str
    reason: str

    @classmethod
    def from_json(cls, value: Any) -> Failure:
        """Out of plain containers, every value checked; raises ``json_values.UnfitError`` (a ValueError)."""
        values = checked.json_object(value, "a failure", tuple(f.name for f in fields(cls)))
        texts = {name: checked.text(values[name], name) for name in ("device", "family", "name", "reason")}
        return cls(threads=checked.integer(values["threads"], "threads", 1), **texts)


def infeasible(failures: Sequence[Failure]) -> tuple[str, ...]:
    """A sentence per family and device: how many probes failed, and why. Those whose cause is unknown are left out."""
    counts: dict[tuple[str, str, str], int] = {}
    for f in failures:
        if f.reason != PROCESS_ENDED:
            counts[f.device, f.family, f.reason] = counts.get((f.device, f.family, f.reason), 0) + 1
    return tuple(
        f"{count} probe{'s' * (count > 1)} of {family} on {device} left out: {reason}"
        for (device, family, reason), count in counts.items()
    )
