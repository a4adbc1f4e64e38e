"""How ops that walk their operands are described: elementwise ones, random numbers, rows, windows and reductions."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from described import feature, spec, traced, work
from torch import Tensor, nn

from placer.pricing.describe import Context, amounts, describe, describe_step, launches
from placer.pricing.families.family import FINE_GRAIN, GRAIN
from placer.pricing.families.loops import (
    CORE_CACHE,
    ELEMENTWISE,
    LINE,
    Loop,
    _reduction_pieces,
    column_fetches,
    column_refetches,
    innermost,
    row_results,
)
from placer.pricing.work import Work
from placer.tracing import trace
from placer.tracing.layout import spec_of
from placer.tracing.trace_data import OpCall, TensorSpec
from placer.workload import make_workload


def test_elementwise_ops() -> None:
    found = work("aten::add", [spec(4, 8), spec(8)], [spec(4, 8)], 1)
    assert (found.family, found.flops, found.bytes) == ("elementwise", 32, 4 * (32 + 8 + 32))
    assert feature(found, "broadcast") == 1
    assert work("aten::tanh", [spec(32)], [spec(32)]).flops > found.flops
    assert feature(work("aten::mul", [spec(4, 8, stride=(1, 4))], [spec(4, 8)]), "strided") == 1


def test_a_broadcast_operand_is_stored_once() -> None:
    found = work("aten::mul", [spec(4, 8), spec(4, 8, stride=(0, 1))], [spec(4, 8)])
    assert found.bytes == 4 * (32 + 8 + 32)


def test_rows_that_are_walked_one_by_one() -> None:
    by_row = work("aten::mul", [spec(6, 4), spec(6, 1)], [spec(6, 4)])
    assert (feature(by_row, "inner"), amounts(by_row)["restarts"]) == (4, 5)
    assert (feature(by_row, "block"), amounts(by_row)["blocks"]) == (24, 0)
    whole = work("aten::mul", [spec(6, 4), spec(6, 4)], [spec(6, 4)])
    assert (feature(whole, "inner"), amounts(whole)["restarts"]) == (24, 0)
    apart = work("aten::clone", [spec(6, 4, stride=(1, 6))], [spec(6, 4)])
    assert (feature(apart, "strided"), amounts(apart)["strided"]) == (1, 24)
    patches = work("aten::clone", [spec(5, 6, 3, 2, stride=(7, 1, 7, 1))], [spec(5, 6, 3, 2)])
    assert (feature(patches, "block"), amounts(patches)["blocks"]) == (6, 29)


def test_a_number_is_no_broadcast_operand() -> None:
    assert feature(work("aten::mul", [spec(4, 8), spec()], [spec(4, 8)]), "broadcast") == 0
    assert feature(work("aten::mul", [spec(4, 8), spec(4, 1)], [spec(4, 8)]), "broadcast") == 1
    assert feature(work("aten::mul_", [spec(4, 8), spec(4, 8)], [spec(4, 8)], in_place=True), "in_place") == 1


def test_what_is_not_one_instruction_is_evaluated() -> None:
    ops = {op: work(f"aten::{op}", [spec(64)], [spec(64)]) for op in ("add", "hardswish", "exp", "mish")}
    assert {op: ELEMENTWISE.evaluates(found) for op, found in ops.items()} == {
        "add": False, "hardswish": False, "exp": True, "mish": True,
    }  # fmt: skip
    assert not ELEMENTWISE.evaluates(work("aten::exp", [spec(0)], [spec(0)]))


def walked(written: Tensor, *read: Tensor) -> Loop:
    return innermost(spec_of(written), [spec_of(t) for t in read])


X = torch.zeros(100, 8, 16)
IMAGE = torch.zeros(2, 3, 5, 7)
CHANNELS_LAST = IMAGE.to(memory_format=torch.channels_last)
PATCHES = IMAGE.unfold(2, 3, 1).unfold(3, 2, 1).permute(0, 2, 3, 1, 4, 5)


@pytest.mark.parametrize(
    ("written", "read", "length", "block", "strided"),
    [
        (X + X, (X, X), 12_800, 12_800, False),
        (X * X[..., :1], (X, X[..., :1]), 16, 12_800, False),
        (X + X[0, 0], (X, X[0, 0]), 16, 12_800, False),
        (X + X[0], (X, X[0]), 128, 12_800, False),
        (X * 2, (X, torch.tensor(2.0)), 12_800, 12_800, False),
        (X.transpose(1, 2) * 2, (X.transpose(1, 2),), 12_800, 12_800, False),
        (X.transpose(1, 2).contiguous(), (X.transpose(1, 2),), 8, 128, True),
        (X[..., ::2] * 2, (X[..., ::2],), 6_400, 6_400, True),
        (X[..., :8].contiguous(), (X[..., :8],), 8, 6_400, False),
        (torch.cat([X, X], -1), (X, X), 16, 12_800, False),
        (torch.cat([X, X], 0), (X, X), 12_800, 12_800, False),
        (torch.zeros(8), (torch.zeros(2), torch.zeros(6)), 2, 2, False),
        (torch.zeros(7), (torch.zeros(1), torch.zeros(6)), 6, 6, False),
        (IMAGE.unfold(3, 3, 1).contiguous(), (IMAGE.unfold(3, 3, 1),), 3, 15, False),
        (PATCHES.contiguous(), (PATCHES,), 2, 6, False),
        (F.pad(IMAGE, (1, 1, 1, 1)), (IMAGE,), 7, 35, False),
        (CHANNELS_LAST + 1, (CHANNELS_LAST,), 210, 210, False),
        (torch.zeros(()), (), 1, 1, False),
        (torch.zeros(0, 4), (torch.zeros(0, 4),), 1, 1, False),
    ],
)  # fmt: skip
def test_the_loop_is_as_long_as_all_operands_are_walked_alike(
    written: Tensor, read: tuple[Tensor, ...], length: int, block: int, strided: bool
) -> None:
    assert walked(written, *read) == Loop(length, block, strided)


def test_an_operand_of_other_dimensions_is_passed_over() -> None:
    assert walked(X, torch.zeros(3, 100, 8, 16)) == Loop(12_800, 12_800, strided=False)


@pytest.mark.parametrize("op", ["bernoulli_", "native_dropout", "randn", "rand_like"])
def test_one_number_for_each_element(op: str) -> None:
    found = work(f"aten::{op}", [spec(4, 8)], [spec(4, 8)])
    assert (found.family, found.flops, found.sizes[0]) == ("random", 32, 32)


def test_a_softmax_has_twelve_flops_an_element_and_rows() -> None:
    found = work("aten::_softmax", [spec(4, 8, 16)], [spec(4, 8, 16)], -1, False)
    assert (found.family, found.flops, found.sizes[:2]) == ("softmax", 12 * 512, (512, 16))
    assert feature(found, "strided") == 0
    apart = work("aten::_log_softmax_backward_data", [spec(8, 4, stride=(1, 8)), spec(8, 4)], [spec(8, 4)])
    assert (feature(apart, "strided"), apart.sizes[:2]) == (1, (32, 4))
    assert work("aten::_softmax", [spec()], [spec()]).sizes[:2] == (1, 1)


def test_it_is_shared_among_cores_early() -> None:
    found = work("aten::_softmax", [spec(3, FINE_GRAIN)], [spec(3, FINE_GRAIN)])
    assert amounts(found, 2)["core_flops"] == found.flops / 2
    assert amounts(found, 8)["core_flops"] == found.flops / 3


@pytest.mark.parametrize("op", ["sort", "topk", "cumsum"])
def test_longer_rows_are_compared_more_often(op: str) -> None:
    found = work(f"aten::{op}", [spec(6, 30)], [spec(6, 30)])
    assert (found.family, found.sizes[:2]) == ("sorting", (180, 30))
    assert amounts(found)["compared"] == pytest.approx(180 * math.log2(32))


@pytest.mark.skipif(
    not hasattr(torch.ops.aten, "_fused_rms_norm_backward"), reason="this torch has no kernel for rms_norm"
)
def test_rms_norm_is_one_kernel_on_cuda_and_its_parts_on_the_cpu() -> None:
    step = trace(make_workload(nn.RMSNorm(64), (32, 64), mode="train"))
    parts = [work for work in describe_step(step) if work.family != "optimizer"]
    whole = [work for work in describe_step(step.on("cuda")) if work.family == "normalization"]
    assert not [work for work in parts if work.family == "normalization"]
    assert [work.op for work in whole] == ["aten::_fused_rms_norm", "aten::_fused_rms_norm_backward"]
    assert [launches(work) for work in whole] == [1.0, 1.0]
    assert whole[0].bytes < sum(work.bytes for work in parts) / 3
    assert whole[0].sizes[:2] == (32 * 64, 64)


def test_rows_or_channels_are_shared_by_cores() -> None:
    rows = work("aten::native_layer_norm", [spec(6, 50), spec(50)], [spec(6, 50)])
    assert (rows.flops, rows.sizes[:2]) == (8 * 300, (300, 50))
    assert amounts(rows, 4)["core_flops"] == rows.flops / 4
    channels = work("aten::native_batch_norm", [spec(6, 2, 9), spec(2)], [spec(6, 2, 9)], True)
    assert amounts(channels, 4)["core_flops"] == channels.flops / 2
    nothing = work("aten::native_layer_norm", [spec(6, 0), spec(0)], [spec(6, 0)])
    assert amounts(nothing, 4)["core_flops"] == 0
    assert amounts(work("aten::native_layer_norm", [spec(5, 3)], [spec(5, 3)]), 99)["core_bytes"] == 2 * 4


def test_a_gradient_walks_the_same_windows_as_its_forward() -> None:
    model = nn.Sequential(nn.Conv2d(1, 2, 1), nn.MaxPool2d(3, 2))
    forward = traced(model, "aten::max_pool2d_with_indices", (4, 1, 9, 9))
    backward = traced(model, "aten::max_pool2d_with_indices_backward", (4, 1, 9, 9))
    large, small = 4 * 2 * 81, 4 * 2 * 16
    for found in (forward, backward):
        assert (found.family, found.flops) == ("pooling", large)
        assert found.sizes[:3] == (large, small, pytest.approx(large / small))
        assert amounts(found)["compared"] == pytest.approx(large)


def test_a_window_holds_one_element_at_the_least() -> None:
    up = work("aten::upsample_nearest2d", [spec(1, 1, 2, 2)], [spec(1, 1, 4, 4)])
    assert up.sizes[:3] == (16, 16, 1)
    apart = work("aten::avg_pool2d", [spec(1, 2, 4, 4, stride=(32, 1, 8, 2))], [spec(1, 2, 2, 2)])
    assert (feature(apart, "strided"), feature(up, "strided")) == (1, 0)

ALONE = Context(footprint_bytes=0, recording=False)




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
    assert [_reduction_pieces(reduced((40_000, n), (n,))) for n in counts] == [1, 1, 2, 3, 4]
    assert [_reduction_pieces(reduced((40_000, n), (n,), "std")) for n in counts] == [20, 63, 64, 96, 128]
    assert _reduction_pieces(reduced((40_000, 20), (40_000,))) == 40_000
    assert _reduction_pieces(reduced((2 * GRAIN, 20), ())) == 40
    assert _reduction_pieces(reduced((100, 128), (128,))) == 1  # too small
    assert _reduction_pieces(reduced((100, 128), (128,), "std")) == 1


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
