"""The order of machines and what is said of each: ties, missing prices, what does not fit, targets."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import replace

import pytest

from placer.fleets import FleetRow
from placer.fleets.ranking import ranked


def row(
    name: str, seconds: float, *, price: float | None = None, watts: float | None = None, fits: bool = True,
    bounded_by: str = "launches",
) -> FleetRow:  # fmt: skip
    return FleetRow(
        "cuda", 1, seconds, seconds / 1.2, seconds * 1.2, 0.0, None, {"compute": seconds}, 3_000_000, fits, 1.0,
        available_memory_bytes=2_000_000, bounded_by=bounded_by, watts=watts, dollars_per_hour=price,
        machine=name, count=1, devices={},
    )  # fmt: skip


def order(
    *rows: FleetRow, objective: str = "time", target: float | None = None
) -> tuple[list[Hashable], Mapping[Hashable, FleetRow]]:
    told = (row if target is None else replace(row, reaches=row.seconds <= target) for row in rows)
    found = ranked({row.machine: row for row in told}, objective, target)
    return list(found), found


def test_by_time_the_fastest_stands_first_and_near_ties_are_told_so() -> None:
    names, found = order(row("slow", 0.030), row("fast", 0.010), row("near", 0.0101))
    assert names == ["fast", "near", "slow"]
    assert [found[name].verdict for name in names] == ["fastest", "about the same", "3.0× the time"]
    assert [found[name].pareto for name in names] == [True, True, False]  # a tie is no difference
    assert {row.reaches for row in found.values()} == {None}


def test_of_machines_as_fast_as_each_other_the_cheapest_stands_first() -> None:
    names, found = order(row("dear", 0.0100, price=3.0), row("cheap", 0.0101, price=0.5), row("slow", 0.030, price=0.1))
    assert names == ["cheap", "dear", "slow"]
    assert (found["cheap"].verdict, found["dear"].verdict) == ("fastest", "5.9× the money")
    assert order(row("unpriced", 0.0100), row("cheap", 0.0101, price=0.5))[0] == ["unpriced", "cheap"]


def test_by_cost_what_has_no_price_stands_last() -> None:
    names, found = order(row("unpriced", 0.001), row("dear", 0.010, price=10.0), row("cheap", 0.0117, price=1.0),
                         objective="cost")  # fmt: skip
    assert names == ["cheap", "dear", "unpriced"]
    assert found["cheap"].verdict == "cheapest"
    assert found["dear"].verdict == "17% faster for 8.5× the money"
    assert found["cheap"].pareto
    assert found["dear"].pareto


def test_without_any_price_the_order_by_cost_says_so() -> None:
    names, found = order(row("slow", 0.030), row("fast", 0.010), objective="cost")
    assert names == ["fast", "slow"]
    assert found["fast"].verdict == "no price is known"


def test_by_energy() -> None:
    names, found = order(row("hot", 0.010, watts=400.0), row("cool", 0.030, watts=50.0), objective="energy")
    assert names == ["cool", "hot"]
    assert found["cool"].verdict == "least energy"
    assert found["hot"].verdict == "3.0× as fast for 2.7× the energy"
    assert found["hot"].pareto


def test_what_does_not_fit_stands_last_and_is_no_trade() -> None:
    names, found = order(row("small", 0.001, price=0.1, fits=False), row("large", 0.010, price=1.0))
    assert names == ["large", "small"]
    assert found["small"].verdict == "does not fit: needs 3.00 MB of 2.00 MB"
    assert not found["small"].pareto


def test_what_reaches_a_target_stands_first_the_cheapest_at_the_top() -> None:
    names, found = order(
        row("fast", 0.010, price=4.0), row("late", 0.060, price=0.1, bounded_by="transfer"),
        row("cheap", 0.040, price=0.5), row("later", 0.090, bounded_by="memory"), target=0.050,
    )  # fmt: skip
    assert names == ["cheap", "fast", "late", "later"]
    assert found["cheap"].verdict == "cheapest that reaches the target"
    assert found["late"].verdict == "1.20× the target, bounded by copies"
    assert found["later"].verdict == "1.80× the target, bounded by memory"
    assert [found[name].reaches for name in names] == [True, True, False, False]


def test_without_prices_the_fastest_reaches_the_target_first() -> None:
    names, found = order(row("b", 0.040), row("a", 0.010), target=0.050)
    assert names == ["a", "b"]
    assert found["a"].verdict == "reaches the target"


@pytest.mark.parametrize("objective", ["time", "cost", "energy"])
def test_of_what_misses_the_target_the_closest_stands_first(objective: str) -> None:
    rows = row("cheap", 0.9, price=0.1, watts=1.0), row("close", 0.2, price=9.0, watts=500.0)
    names, _ = order(*rows, objective=objective, target=0.1)
    assert names == ["close", "cheap"]


def test_by_energy_what_takes_the_least_of_it_reaches_the_target_first() -> None:
    rows = row("cheap", 0.010, price=0.1, watts=400.0), row("cool", 0.030, price=9.0, watts=50.0)
    names, found = order(*rows, objective="energy", target=0.050)
    assert names == ["cool", "cheap"]
    assert found["cool"].verdict == "least energy that reaches the target"


def test_without_any_power_the_order_by_energy_says_so() -> None:
    names, found = order(row("slow", 0.030), row("fast", 0.010), objective="energy")
    assert names == ["fast", "slow"]
    assert found["fast"].verdict == "no power is known"
