"""The Pareto set, and what one point gives for what it costs beside another."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placer.decision.decision import Point, pareto, trade

AMOUNT = st.one_of(st.none(), st.sampled_from([1.0, 2.0, 3.0]))


def names(*points: Point) -> str:
    return "".join(point.name for point in pareto(points))


def test_a_point_is_beaten_by_what_is_nowhere_worse() -> None:
    fast, cheap = Point("f", 1.0, 5.0), Point("c", 2.0, 1.0)
    assert names(fast, cheap) == "fc"
    assert names(fast, cheap, Point("x", 2.0, 1.5)) == "fc"
    assert names(fast, cheap, Point("y", 1.5, 1.5)) == "fcy"
    assert names(fast, Point("g", 1.0, 5.0)) == "fg"  # equal ones don't beat each other


def test_a_difference_below_two_percent_is_none() -> None:
    assert names(Point("fastest", 1.0, 10.0), Point("c", 1.01, 1.0)) == "c"
    assert names(Point("a", 1.0, 1.01), Point("b", 1.01, 1.0)) == "ab"


def test_what_nobody_knows_beats_nothing() -> None:
    assert names(Point("u", 1.0), Point("k", 2.0, 1.0)) == "uk"
    assert names(Point("u", 3.0), Point("k", 2.0, 1.0)) == "k"


Values = tuple[float, float | None, float | None]


@given(st.lists(st.tuples(st.sampled_from([1.0, 2.0, 3.0]), AMOUNT, AMOUNT), min_size=1, max_size=6))
def test_the_set_is_never_empty_and_nothing_in_it_is_beaten(values: list[Values]) -> None:
    points = [Point(str(number), *each) for number, each in enumerate(values)]
    found = pareto(points)
    assert found
    assert pareto(found) == found
    assert min(points, key=lambda p: p.seconds).seconds == min(p.seconds for p in found)


@pytest.mark.parametrize(
    ("other", "chosen", "told"),
    [
        (Point("", 1.0, 5.0), Point("", 1.17, 1.0), "17% faster for 5.0× the money"),
        (Point("", 1.0, 1.05), Point("", 3.0, 1.0), "3.0× as fast for 5% more money"),
        (Point("", 2.0, 0.5), Point("", 1.0, 1.0), "50% less money for 2.0× the time"),
        (Point("", 1.05, 0.5), Point("", 1.0, 1.0), "50% less money for 5% more time"),
        (Point("", 2.0, 3.0), Point("", 1.0, 1.0), "2.0× the time and 3.0× the money"),
        (Point("", 1.0, None, 4.0), Point("", 2.0, 1.0, 1.0), "2.0× as fast for 4.0× the energy"),
        (Point("", 1.0), Point("", 1.01), ""),
    ],
)
def test_a_trade_is_one_line(other: Point, chosen: Point, told: str) -> None:
    assert trade(other, chosen) == told
