"""Probes that could not be measured, and what a reader of the profile should know of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from placer.errors import CalibrationError
from placer.profile import json_values as checked

HUNG = "it did not come back"
TOO_LARGE = "it did not fit in memory"
NOT_MATCHED = "the device ran other ops than were traced"
KERNELS_LOST = "the recorder saw its launches and not its kernels"
NO_NUMBER = "its time was no number"
#: The process was ended from outside, perhaps by this probe.
PROCESS_ENDED = "the process ended while it ran"
#: Reasons that are told whatever the number of probes. All others are of ops that a device has not for some dtype: a
#: few are normal.
_ALWAYS_TOLD = (HUNG, TOO_LARGE, KERNELS_LOST)
#: Share of a family's probes that must have failed for the others to be told.
NOTABLE = 0.1


class KernelsLostError(CalibrationError):
    """The recorder saw what was launched, and none of the kernels."""


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


def infeasible(failures: Sequence[Failure], measured: Mapping[tuple[str, str], int] | None = None) -> tuple[str, ...]:
    """A sentence per family, device and reason: how many probes failed, and why.

    ``measured``: the number of probes that were measured, by device and family. What few of a family's probes lack is
    left out, and so are those whose cause is unknown.
    """
    known = [f for f in failures if f.reason != PROCESS_ENDED]
    told = Counter((f.device, f.family, f.reason) for f in known if f.reason in _ALWAYS_TOLD)
    others: dict[tuple[str, str], Counter[str]] = {}
    for f in known:
        if f.reason not in _ALWAYS_TOLD:
            others.setdefault((f.device, f.family), Counter())[f.reason] += 1
    for key, reasons in others.items():
        count = reasons.total()
        if count >= NOTABLE * (count + (measured or {}).get(key, 0)):
            told[(*key, _most(reasons))] = count
    return tuple(
        f"{count} probe{'s' * (count > 1)} of {family} on {device} left out: {reason}"
        for (device, family, reason), count in told.items()
    )


def _most(reasons: Counter[str]) -> str:
    """The most frequent reason, and how many others there are."""
    reason = reasons.most_common(1)[0][0]
    others = len(reasons) - 1
    return f"{reason} (and {others} other reason{'s' * (others > 1)})" if others else reason
