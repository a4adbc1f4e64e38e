from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placer.explanation.console import bar, curves, sparkline


def test_a_bar_is_its_share_to_an_eighth_of_a_character() -> None:
    assert bar(1.0, 4) == "████"
    assert bar(0.5, 4) == "██"
    assert bar(0.15625, 4) == "▋"
    assert bar(0.0, 4) == ""
    assert bar(1e-9, 4) == "▏"  # little is not nothing
    assert bar(7.0, 4) == "████"
    assert bar(0.5, 0) == ""


@given(st.floats(0.0, 1.0), st.integers(1, 40))
def test_a_bar_never_leaves_its_column(share: float, width: int) -> None:
    assert len(bar(share, width)) <= width


def test_a_sparkline_rises_with_its_values_on_a_log_scale() -> None:
    assert sparkline([1.0, 10.0, 100.0]) == "▁▅█"  # the middle of seven steps is rounded to the even one
    assert sparkline([3.0, 3.0]) == "▁▁"
    assert sparkline([0.0, 1.0, 2.0]) == " ▁█"
    assert sparkline([]) == ""


def test_curves_cross_where_their_values_do() -> None:
    drawn = curves({"a": [1.0, 10.0, 100.0], "b": [100.0, 10.0, 1.0]}, "ab", width=5, height=3)
    assert drawn == ["bb aa", "  *", "aa bb"]


def test_a_gap_in_a_curve_is_bridged_and_its_ends_are_not_drawn_on() -> None:
    drawn = curves({"a": [None, 1.0, None, 1.0, None]}, "a", width=5, height=1)
    assert drawn == [" aaa"]


@pytest.mark.parametrize("series", [{}, {"a": []}, {"a": [1.0]}, {"a": [None, None]}])
def test_nothing_to_draw(series: dict[str, list[float | None]]) -> None:
    assert curves(series, "a" * len(series), width=5, height=3) == []
