"""How reductions walk their operands, counted by hand, and what of it falls to the busiest core."""

from __future__ import annotations

import pytest
from described import feature, work

from placer.pricing.describe import amounts, describe
from placer.pricing.families.reduction import LINE, column_fetches, column_refetches, pieces, row_results
from placer.pricing.families.sharing import GRAIN
from placer.pricing.reuse_distance import CORE_CACHE
from placer.pricing.step_context import Context
from placer.pricing.work import Work
from placer.tracing import dense
from placer.tracing.trace_data import OpCall, TensorSpec

ALONE = Context(footprint_bytes=0, recording=False)


def spec(*shape: int) -> TensorSpec:
    return dense(shape, "float32")


def reduced(source: tuple[int, ...], result: tuple[int, ...], op: str = "sum") -> Work:
    return describe(OpCall(f"aten::{op}", (spec(*source),), (spec(*result),)), ALONE)


@pytest.mark.parametrize(
    ("columns", "turns"),
    [(3, 3), (4, 1), (5, 2), (7, 4), (8, 1), (10, 3), (16, 2), (20, 6), (31, 10), (32, 1), (33, 2), (40, 2), (96, 3)],
)
def test_columns_left_over_are_summed_one_by_one(columns: int, turns: int) -> None:
    work = reduced((1000, columns), (columns,))
    assert column_fetches(work, 1) == 1000 * turns
    assert row_results(work) == 0


def test_what_is_reduced_tells_what_it_costs() -> None:
    columns, rows, everything = reduced((1000, 31), (31,)), reduced((1000, 31), (1000,)), reduced((1000, 31), ())
    assert [column_fetches(work, 1) for work in (columns, rows, everything)] == [10_000, 0, 0]
    assert [row_results(work) for work in (columns, rows, everything)] == [0, 1000, 0]
    column = spec(1000, 1)
    gradient = describe(OpCall("aten::mse_loss_backward", (spec(), column, column), (column,), phase="backward"), ALONE)
    assert row_results(gradient) == 0  # as many results as elements


def test_the_last_core_gets_what_the_others_leave_of_their_last_bundle_of_columns() -> None:
    # 100 columns: 32 for the first core, 68 for the second, the last four of them one by one
    wide = reduced((1000, 100), (100,))
    assert [column_fetches(wide, threads) for threads in (1, 2)] == [1000 * (3 + 4), 1000 * (2 + 4)]
    even = reduced((1000, 128), (128,))
    assert [column_fetches(even, threads) for threads in (1, 2, 4)] == [4000, 2000, 1000]
    assert column_fetches(reduced((100, 128), (128,)), 2) == 400  # too small to be shared
    rows = GRAIN // 128
    assert [column_fetches(reduced((n, 128), (128,)), 2) for n in (rows, rows - 1)] == [rows * 2, (rows - 1) * 4]


def test_columns_that_no_cache_holds_are_fetched_again_for_every_turn() -> None:
    """20 columns take six turns, each of which fetches a line of every row of 80 bytes."""
    small, large = CORE_CACHE // 80 // 2, CORE_CACHE // 80 * 4
    assert column_refetches(reduced((small, 20), (20,)), 1) == 0
    assert column_refetches(reduced((large, 20), (20,)), 1) == large * (6 * LINE - 80)
    assert column_refetches(reduced((large, 32), (32,)), 1) == 0  # one turn is enough
    assert column_refetches(reduced((large, 20), (large,)), 1) == 0  # rows are gone through once


def test_sums_share_columns_in_bundles_and_variances_one_by_one() -> None:
    counts = (20, 63, 64, 96, 128)
    assert [pieces(reduced((40_000, n), (n,))) for n in counts] == [1, 1, 2, 3, 4]
    assert [pieces(reduced((40_000, n), (n,), "std")) for n in counts] == [20, 63, 64, 96, 128]
    assert pieces(reduced((40_000, 20), (40_000,))) == 40_000
    assert pieces(reduced((2 * GRAIN, 20), ())) == 40
    assert pieces(reduced((100, 128), (128,))) == pieces(reduced((100, 128), (128,), "std")) == 1  # too small


def test_profiles_of_before_find_the_amounts_they_were_fitted_to() -> None:
    found = amounts(reduced((40_000, 20), (20,), "std"), 2)
    assert found["core_read_bytes"] == found["bytes"] / 2
    assert (found["core_bytes"], found["core_flops"]) == (found["bytes"], found["flops"])
    wide = amounts(reduced((1000, 100), (100,)), 2)
    assert (wide["column_fetches"], wide["column_loads"]) == (6000, 7000)


def test_reductions_know_which_dimension_survives() -> None:
    outer = work("aten::sum", [spec(16, 8)], [spec(8)], (0,))
    inner = work("aten::sum", [spec(16, 8)], [spec(16)], (1,))
    assert (outer.flops, outer.bytes) == (128, 4 * (128 + 8))
    assert (feature(outer, "inner_survives"), feature(inner, "inner_survives")) == (1, 0)


def test_a_dimension_of_one_does_not_survive() -> None:
    assert feature(work("aten::sum", [spec(16, 1)], [spec(1)], (0,)), "inner_survives") == 0
    assert feature(work("aten::sum", [spec(16, 8)], [spec()]), "inner_survives") == 0
    strided = TensorSpec((16, 8), (1, 16), "float32")
    assert feature(work("aten::sum", [strided], [spec(16)], (1,)), "strided") == 1
    assert work("aten::sum", [], [spec()]).flops == 0
