"""The answer to "where should this run?" as data: one row a kind of machine, the best first."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from placer.pricing import Cost
from placer.units import format_bytes

#: History of the JSON format.
SCHEMA = 1
#: What bounds a step, in a word or two.
LIMITS = {
    "launches": "the host", "transfer": "copies", "arithmetic": "arithmetic", "memory": "memory",
    "waits": "waits", "loader": "the loader",
}  # fmt: skip


@dataclass(frozen=True)
class FleetRow:
    """One kind of machine, on the best of its devices. Times in seconds, money in dollars, energy in joules.

    ``devices`` are the prices of all its devices, ``gpu`` is its GPU in the catalog ("" where it has none, or one that
    was calibrated). ``verdict`` says what it gives beside the best row; ``pareto``: no
    other row betters it in something without being worse in anything else. ``reaches`` is whether it does within the
    target (None without one).
    """

    machine: str
    count: int
    device: str
    devices: Mapping[str, Cost]
    gpu: str = ""
    note: str = ""
    verdict: str = ""
    pareto: bool = False
    reaches: bool | None = None

    @property
    def row(self) -> Cost:
        """The price on ``device``."""
        return self.devices[self.device]

    @property
    def step_seconds(self) -> float:
        """Of one step; of one job, where it is a job."""
        return self.row.step_seconds

    @property
    def low(self) -> float:
        return self.row.low

    @property
    def high(self) -> float:
        return self.row.high

    @property
    def job_seconds(self) -> float | None:
        """Of all steps, or all repeats of a job, with what is paid once; None where nobody said how many there are."""
        return self.row.total_seconds

    @property
    def one_time_seconds(self) -> float:
        return self.row.one_time_seconds

    @property
    def seconds(self) -> float:
        """What counts: of all where it is known how many there are, else of one."""
        return self.row.seconds

    @property
    def between(self) -> tuple[float, float]:
        """A 90 % interval of ``seconds``. What is paid once counts as known."""
        if self.row.total_seconds is None:
            return self.low, self.high
        steps = (self.row.total_seconds - self.one_time_seconds) / self.step_seconds
        return self.one_time_seconds + steps * self.low, self.one_time_seconds + steps * self.high

    @property
    def dollars(self) -> float | None:
        """Of what counts; None without a price."""
        return self.row.dollars

    @property
    def joules(self) -> float | None:
        """Of what counts, an estimate; None where it is not known."""
        return self.row.joules

    @property
    def fits(self) -> bool:
        return self.row.fits

    @property
    def bounded_by(self) -> str | None:
        return self.row.bounded_by

    @property
    def provenance(self) -> str:
        return self.row.provenance

    def to_dict(self) -> dict[str, Any]:
        """Plain values: what is stored, and what follows from it."""
        derived = ("step_seconds", "low", "high", "job_seconds", "one_time_seconds", "dollars", "joules", "fits",
                   "bounded_by", "provenance")  # fmt: skip
        return {**asdict(self), **{name: getattr(self, name) for name in derived}}


@dataclass(frozen=True)
class FleetData:
    """Machines for one workload or job, the best first.

    ``objective`` is time, cost or energy, ``target`` the seconds within which it should be done (None: none was
    asked for), ``unit`` what one step is called (step or job) and ``count`` how many there are (None: a long run).
    """

    rows: tuple[FleetRow, ...]
    workload: Mapping[str, Any]
    objective: str = "time"
    target: float | None = None
    unit: str = "step"
    count: int | None = None
    notes: tuple[str, ...] = field(default=())

    @property
    def best(self) -> FleetRow | None:
        """The first row, if it fits there and reaches the target."""
        first = self.rows[0] if self.rows else None
        return first if first is not None and first.fits and first.reaches is not False else None

    def to_dict(self) -> dict[str, Any]:
        rows = [row.to_dict() for row in self.rows]
        best = None if self.best is None else self.best.machine
        return {"schema": SCHEMA, **asdict(self), "rows": rows, "best": best}

    def to_json(self) -> str:
        """Indented JSON, ending in a newline."""
        return json.dumps(self.to_dict(), indent=2, allow_nan=False) + "\n"


def needed_memory(row: FleetRow) -> str:
    """What it needs, and of how much, where that is known."""
    needed, available = row.row.peak_memory_bytes, row.row.available_memory_bytes
    return f"needs {format_bytes(needed)}" + (f" of {format_bytes(available)}" if available is not None else "")
