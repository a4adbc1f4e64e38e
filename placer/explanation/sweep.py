"""The answers for one workload over a range of batch sizes or of numbers of steps, and where the choice turns."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from placer.decision import Decision, Table
from placer.explanation.words import headings, legend, sureness
from placer.lazy import cached_property
from placer.pricing import Cost
from placer.sections import Section, render
from placer.units import format_duration, format_interval

#: What varies, in words, and what is counted of it.
_AXES = {"batch": "batch size", "steps": "number of steps", "count": "steps", "repeats": "number of repeats"}
_COUNTED = {"steps": "steps", "count": "steps", "repeats": "repeats"}
#: Of so many devices the table has intervals.
MOST_INTERVALS = 3
#: The verdict where no device has room.
NOWHERE = "fits nowhere"
#: What the chosen device is, by what is minimized.
_BETTER = {"time": "faster", "cost": "cheaper", "energy": "less energy"}


@dataclass(frozen=True)
class Sweep:
    """Tables by value of ``over``: batch or steps, of a job batch or count of its ``part``, or repeats.

    All are of the same devices. ``failed`` says why a value has none.
    """

    over: str
    rows: Mapping[int, Table]
    failed: Mapping[int, str] = field(default_factory=dict)
    part: str = ""

    @cached_property
    def decisions(self) -> dict[int, Decision]:
        """What is chosen at each value."""
        return {value: table.decide() for value, table in self.rows.items()}

    @cached_property
    def choices(self) -> dict[int, str]:
        """What is chosen at each value, in words: a device, that some are about the same, or that none has room."""
        return {
            value: decision.verdict if self.rows[value].fits else NOWHERE for value, decision in self.decisions.items()
        }

    @property
    def axis(self) -> str:
        """What varies, in words."""
        return _AXES[self.over] + (f" of {self.part}" if self.part else "")

    @property
    def in_all(self) -> bool:
        """Whether its times are those of a whole run, what is paid once included, and not of one step or job."""
        return self.over in ("steps", "repeats")

    def named(self, value: float) -> str:
        """A value in words: ``batch 64``, ``64 steps``."""
        what = f"batch {value:,.0f}" if self.over == "batch" else f"{value:,.0f} {_COUNTED[self.over]}"
        return f"{what} of {self.part}" if self.part else what

    @property
    def costs(self) -> Mapping[str, Cost]:
        """A cost of each device, for what holds at all values."""
        return next(iter(self.rows.values())).costs

    @property
    def headings(self) -> dict[str, str]:
        """The devices, and what each is called above its numbers."""
        return headings(self.costs)

    def times(self, device: str) -> list[tuple[float, float, float]]:
        """Seconds, low and high at each value: of the whole run over numbers of steps or repeats, else of one."""
        times = []
        for value, table in self.rows.items():
            cost = table.costs[device]
            once, steps = (cost.one_time_seconds, value) if self.in_all else (0.0, 1)
            times.append((once + steps * cost.step_seconds, once + steps * cost.low, once + steps * cost.high))
        return times

    def crossovers(self) -> list[tuple[int, str]]:
        """(value, device) of the first value that fits, and of each where the choice differs from the value before."""
        return _changes({value: decision.device for value, decision in self.decisions.items() if self.rows[value].fits})

    def verdicts(self) -> list[tuple[int, str]]:
        """(value, verdict) of the first value, and of each where the verdict differs from the one before."""
        return _changes(self.choices)

    def turn(self, value: int) -> float | None:
        """About where the two choices are level between the value before ``value`` and ``value``; None: nowhere."""
        values = list(self.rows)
        index = values.index(value)
        return level(self.rows, values[index - 1], value) if index else None

    def to_text(self, *, width: int = 100, color: bool = False) -> str:
        """Text at most ``width`` columns wide: the table, and where the devices take equal time."""
        return render(self.sections(), width=width, color=color)

    def sections(self) -> list[Section]:
        """The table, and what it says in words."""
        levels = [self.turn(value) for value, _ in self.crossovers()[1:]]
        what = "take equal time" if self._objective == "time" else "are level"
        meetings = [f"Both {what} at about {self.named(where)}." for where in levels if where is not None]
        failures = [f"{self.named(value)}: {reason}" for value, reason in self.failed.items()]
        return [self._table(), Section(after=[*legend(self.costs.values()), *meetings, self.verdict(), *failures])]

    def verdict(self) -> str:
        """One sentence on which device is chosen where."""
        (_, first), *later = self.verdicts()
        if not later:
            return f"{first} at every {self.axis}."
        return f"{first} first; " + "; ".join(f"{device} from {self.named(value)} on" for value, device in later) + "."

    @property
    def _objective(self) -> str:
        return next(iter(self.rows.values())).objective.name

    def _table(self) -> Section:
        """One row per value, an arrow where the verdict changes; of many devices there is no room for intervals."""
        wide = len(self.costs) <= MOST_INTERVALS
        columns: list[str] = []
        for name in self.headings.values():
            columns += (name, "90% between") if wide else (name,)
        turning = {value for value, _ in self.verdicts()[1:]}
        times_of = [self.times(name) for name in self.costs]
        rows = []
        for index, (value, decision) in enumerate(self.decisions.items()):
            cells = [f"{value:,}"]
            for times in times_of:
                seconds, low, high = times[index]
                cells += [format_duration(seconds), *([format_interval(low, high, seconds)] if wide else [])]
            if len(self.costs) > 1:
                sure = decision.confidence if self.rows[value].fits else None
                cells.append(f"{'→ ' if value in turning else ''}{self.choices[value]}")
                cells.append("-" if sure is None else sureness(sure))
            rows.append(cells)
        unit = "in all" if self.in_all else "of the job" if self.part else "of a step"
        compared = [_BETTER[self._objective], "sure"] if len(self.costs) > 1 else []
        strong = [number for number, value in enumerate(self.rows) if value in turning]
        title = f"Seconds {unit} by {self.axis}"
        return Section(title, rows=rows, heads=[self.over, *columns, *compared], strong=strong)

    def to_json(self) -> str:
        """Indented JSON, ending in a newline."""
        rows: list[dict[str, Any]] = []
        for value, table in self.rows.items():
            decision = self.decisions[value]
            rows.append(
                {
                    self.over: value,
                    "choice": decision.device,
                    "verdict": self.choices[value],
                    "confidence": decision.confidence,
                    "devices": {name: asdict(cost) for name, cost in table.costs.items()},
                }
            )
        values = {
            "schema": 1,
            "sweep": self.over,
            **({"part": self.part} if self.part else {}),
            "rows": rows,
            "failed": {str(value): reason for value, reason in self.failed.items()},
            "crossovers": [{self.over: value, "choice": device} for value, device in self.crossovers()],
        }
        return json.dumps(values, indent=2, allow_nan=False) + "\n"


def level(tables: Mapping[int, Table], low: int, high: int) -> float | None:
    """About where the device chosen at the value ``low`` and the one chosen at ``high`` are level.

    The logarithm of the ratio of what they take is interpolated linearly over the logarithm of the value. None where
    that does not cross 1: something else than time, money or energy turns the choice, like memory.
    """
    old, new = (tables[value].decide().device for value in (low, high))
    ratios = []
    for table in (tables[low], tables[high]):
        before, after = (table.objective.counted(table.costs[name]) for name in (old, new))
        if before <= 0.0 or after <= 0.0:
            return None
        ratios.append(math.log(before / after))
    first, last = ratios
    if first == last or not first <= 0.0 <= last:
        return None
    return float(low * (high / low) ** (-first / (last - first)))


def _changes(words_at: Mapping[int, str]) -> list[tuple[int, str]]:
    """The first of what is said, and each that differs from the one before."""
    changes: list[tuple[int, str]] = []
    for value, words in words_at.items():
        if not changes or changes[-1][1] != words:
            changes.append((value, words))
    return changes
