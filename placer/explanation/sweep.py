"""The answers for one workload over a range of batch sizes or of numbers of steps, and where the choice turns."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

from placer.decision import Decision, Table
from placer.explanation.sections import Section
from placer.explanation.sentences import headings, legend, sureness
from placer.explanation.text import drawn, plain
from placer.pricing import Cost
from placer.units import format_seconds

#: What varies, in words, and what is counted of it.
_AXES = {"batch": "batch size", "steps": "number of steps", "count": "steps", "repeats": "number of repeats"}
_COUNTED = {"steps": "steps", "count": "steps", "repeats": "repeats"}
#: Of so many devices the table has intervals.
MOST_INTERVALS = 3
#: What the chosen device is, by what is minimized.
_BETTER = {"time": "faster", "cost": "cheaper", "energy": "less energy"}


@dataclass(frozen=True)
class Sweep:
    """Tables by value of ``over``: batch or steps, of a job batch or count of its ``part``, or repeats.

    ``failed`` says why a value has none.
    """

    over: str
    rows: Mapping[int, Table]
    failed: Mapping[int, str] = field(default_factory=dict)
    part: str = ""

    @cached_property
    def decisions(self) -> dict[int, Decision]:
        """What is chosen at each value."""
        return {value: table.decide() for value, table in self.rows.items()}

    @property
    def axis(self) -> str:
        """What varies, in words."""
        return _AXES[self.over] + (f" of {self.part}" if self.part else "")

    @property
    def in_all(self) -> bool:
        """Whether its times are those of a whole run, what is paid once included, and not of one step or job."""
        return self.over in ("steps", "repeats")

    @property
    def objective(self) -> str:
        """What the choices minimize: time, cost or energy."""
        return next((decision.objective for decision in self.decisions.values()), "time")

    def named(self, value: float) -> str:
        """A value in words: ``batch 64``, ``64 steps``."""
        what = f"batch {value:,.0f}" if self.over == "batch" else f"{value:,.0f} {_COUNTED[self.over]}"
        return f"{what} of {self.part}" if self.part else what

    @property
    def costs(self) -> dict[str, Cost]:
        """A cost of each device, for what holds at all values."""
        return {device: cost for table in self.rows.values() for device, cost in table.costs.items()}

    @property
    def headings(self) -> dict[str, str]:
        """The devices, and what each is called above its numbers."""
        return headings(self.costs)

    def times(self, device: str) -> list[tuple[float, float, float] | None]:
        """Seconds, low and high at each value: of the whole run over numbers of steps or repeats, else of one."""
        times: list[tuple[float, float, float] | None] = []
        for value, table in self.rows.items():
            cost = table.costs.get(device)
            if cost is None:
                times.append(None)
                continue
            once, steps = (cost.one_time_seconds, value) if self.in_all else (0.0, 1)
            times.append((once + steps * cost.step_seconds, once + steps * cost.low, once + steps * cost.high))
        return times

    def crossovers(self) -> list[tuple[int, str]]:
        """(value, device) of the first value, and of each where the choice differs from the value before."""
        return _changes({value: decision.device for value, decision in self.decisions.items()})

    def verdicts(self) -> list[tuple[int, str]]:
        """(value, verdict) of the first value, and of each where the verdict differs from the one before."""
        return _changes({value: decision.verdict for value, decision in self.decisions.items()})

    def turn(self, value: int) -> float | None:
        """About where the two choices take equal time between the value before ``value`` and ``value``; None: nowhere.

        The logarithm of the two times' ratio is interpolated linearly over the logarithm of the value. None where time
        is not what turns the choice.
        """
        values = list(self.rows)
        index = values.index(value)
        if not index or self.objective != "time":
            return None
        old, new = (self.times(self.decisions[end].device) for end in (values[index - 1], value))
        pairs = []
        for before, after in ((old[i], new[i]) for i in (index - 1, index)):
            if before is None or after is None:
                return None
            pairs.append((before[0], after[0]))
        return level(values[index - 1], value, *pairs)

    def to_text(self, *, width: int = 100, color: bool = False) -> str:
        """Text at most ``width`` columns wide: the table, and where the devices take equal time."""
        levels = [self.turn(value) for value, _ in self.crossovers()[1:]]
        meetings = [f"Both take equal time at about {self.named(where)}." for where in levels if where is not None]
        failures = [f"{self.named(value)}: {reason}" for value, reason in self.failed.items()]
        below = [*legend(self.costs.values()), *meetings, turns(self), *failures]
        return plain([*drawn(table(self), width), *below], width=width, color=color)

    def to_json(self) -> str:
        """Indented JSON, ending in a newline."""
        rows: list[dict[str, Any]] = []
        for value, table in self.rows.items():
            decision = self.decisions[value]
            rows.append(
                {
                    self.over: value,
                    "choice": decision.device,
                    "verdict": decision.verdict,
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


def level(low: float, high: float, at_low: tuple[float, float], at_high: tuple[float, float]) -> float | None:
    """About where two devices take the same between the values ``low`` and ``high``.

    Given is what the one chosen at ``low`` and the one chosen at ``high`` take at each. The logarithm of the ratio is
    interpolated linearly over the logarithm of the value. None where it does not cross 1.
    """
    if min(*at_low, *at_high) <= 0.0:
        return None
    first, last = (math.log(old / new) for old, new in (at_low, at_high))
    if first == last or not first <= 0.0 <= last:
        return None
    return float(low * (high / low) ** (-first / (last - first)))


def _changes(said: Mapping[int, str]) -> list[tuple[int, str]]:
    """The first of what is said, and each that differs from the one before."""
    changes: list[tuple[int, str]] = []
    for value, words in said.items():
        if not changes or changes[-1][1] != words:
            changes.append((value, words))
    return changes


def turns(sweep: Sweep) -> str:
    """One sentence on which device is chosen where."""
    (_, first), *later = sweep.verdicts()
    if not later:
        return f"{first} at every {sweep.axis}."
    return f"{first} first; " + "; ".join(f"{device} from {sweep.named(value)} on" for value, device in later) + "."


def table(sweep: Sweep) -> Section:
    """One row per value, with an arrow where the verdict changes; of many devices there is no room for intervals."""
    # A single device is no choice that one could be sure of.
    compared = any(decision.speedup is not None for decision in sweep.decisions.values())
    wide = len(sweep.headings) <= MOST_INTERVALS
    columns = [column for name in sweep.headings.values() for column in ((name, "90% between") if wide else (name,))]
    times_of = {name: sweep.times(name) for name in sweep.headings}
    turning = {value for value, _ in sweep.verdicts()[1:]}
    rows = []
    for index, (value, decision) in enumerate(sweep.decisions.items()):
        cells = [f"{value:,}"]
        for times in times_of.values():
            time = times[index]
            words = ["-", "-"] if time is None else [format_seconds(time[0]), _between(time[1], time[2])]
            cells += words if wide else words[:1]
        if compared:
            unsure = decision.confidence is None or decision.speedup is None
            cells.append(f"{'→ ' if value in turning else ''}{decision.verdict}")
            cells.append("-" if unsure else sureness(decision.confidence or 0.0))
        rows.append(cells)
    unit = "in all" if sweep.in_all else "of the job" if sweep.part else "of a step"
    return Section(
        f"Seconds {unit} by {sweep.axis}",
        rows=rows,
        heads=[sweep.over, *columns, *([_BETTER[sweep.objective], "sure"] if compared else [])],
        strong=[number for number, value in enumerate(sweep.rows) if value in turning],
    )


def _between(low: float, high: float) -> str:
    """An interval, its unit once where both ends have it: ``1.20–1.50 ms``."""
    (a, unit), (b, other) = format_seconds(low).split(" "), format_seconds(high).split(" ")
    return f"{a}–{b} {other}" if unit == other else f"{a} {unit}–{b} {other}"
