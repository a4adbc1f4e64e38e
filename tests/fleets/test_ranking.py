"""The order of machines and what is said of each: ties, missing prices, what does not fit, targets."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from placer.fleets import FleetRow
from placer.fleets.ranking import ranked
from placer.pricing import Cost


def row(name: str, seconds: float, price: float | None = None, *, fits: bool = True, **values: Any) -> FleetRow:
    """A machine that has 2 MB of the 3 that are needed."""
    memory, step = (3_000_000, fits), (seconds, seconds / 1.2, seconds * 1.2)
    known = {"available_memory_bytes": 2_000_000, "dollars_per_hour": price, "bounded_by": "launches", **values}
    return FleetRow(Cost("cuda", 1, *step, 0.0, None, {"compute": seconds}, *memory, 1.0, **known), name, 1, {})


def order(
    *rows: FleetRow, objective: str = "time", target: float | None = None
) -> tuple[list[Hashable], Mapping[Hashable, FleetRow]]:
    told = (row if target is None else replace(row, reaches=row.seconds <= target) for row in rows)
    found = ranked({row.machine: row for row in told}, objective, target)
    return list(found), found


def test_the_fastest_stands_first_and_of_those_as_fast_the_cheapest() -> None:
    names, found = order(row("slow", 0.030), row("fast", 0.010), row("near", 0.0101))
    assert [found[name].verdict for name in names] == ["fastest", "about the same", "3.0× the time"]
    assert [found[name].pareto for name in names] == [True, True, False]  # a tie is no difference
    names, found = order(row("dear", 0.0100, price=3.0), row("cheap", 0.0101, price=0.5), row("slow", 0.030, price=0.1))
    assert names == ["cheap", "dear", "slow"]
    assert (found["cheap"].verdict, found["dear"].verdict) == ("fastest", "5.9× the money")
    assert order(row("unpriced", 0.0100), row("cheap", 0.0101, price=0.5))[0] == ["unpriced", "cheap"]


FAST = row("fast", 0.010, price=4.0, watts=400.0)
COOL = row("cool", 0.030, price=9.0, watts=50.0)
BARE = row("bare", 0.001)


LATE = row("late", 0.060, price=0.1, bounded_by="transfer")


@pytest.mark.parametrize(
    ("rows", "objective", "target", "verdicts"),
    [
        ((BARE,), "cost", None, ["no price is known"]),
        ((BARE,), "energy", None, ["no power is known"]),
        ((row("dear", 0.010, price=10.0), row("cheap", 0.0117, price=1.0)), "cost", None,
         ["cheapest", "17% faster for 8.5× the money"]),
        ((FAST, COOL), "energy", 0.050,
         ["least energy that reaches the target", "3.0× as fast and 85% less money for 2.7× the energy"]),
        ((row("small", 0.001, fits=False), FAST), "time", None, ["fastest", "does not fit: needs 3.00 MB of 2.00 MB"]),
        ((LATE, row("cheap", 0.040, price=0.5)), "time", 0.050,
         ["cheapest that reaches the target", "1.20× the target, bounded by copies"]),
        ((row("b", 0.040), BARE), "time", 0.050, ["reaches the target", "40.0× the time"]),
    ],
)  # fmt: skip
def test_the_order_and_what_is_said_of_each(
    rows: tuple[FleetRow, ...], objective: str, target: float | None, verdicts: list[str]
) -> None:
    names, ranked = order(*rows, objective=objective, target=target)
    assert [ranked[name].verdict for name in names] == verdicts


@pytest.mark.parametrize("objective", ["time", "cost", "energy"])
def test_of_what_misses_the_target_the_closest_stands_first(objective: str) -> None:
    rows = row("cheap", 0.9, price=0.1, watts=1.0), row("close", 0.2, price=9.0, watts=500.0)
    names, found = order(*rows, objective=objective, target=0.1)
    assert names == ["close", "cheap"]
    assert [found[name].reaches for name in names] == [False, False]
