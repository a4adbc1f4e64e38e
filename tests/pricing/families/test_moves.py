"""Ops that move rows by index, views, and ops without a formula."""

from __future__ import annotations

from collections.abc import Hashable

import pytest
import torch
from described import feature, spec, traced, work
from torch import Tensor, nn

from placer.pricing.describe import amounts, describe_step
from placer.pricing.families import family_of
from placer.pricing.families.family import GRAIN
from placer.tracing import trace
from placer.tracing.trace_data import TensorSpec
from placer.workload import make_workload


def test_an_embedding_reads_the_rows_it_looks_up_not_its_table() -> None:
    ids = torch.zeros(4, 6, dtype=torch.long)
    forward = traced(nn.Embedding(50_000, 8), "aten::embedding", example=(ids,))
    assert forward.bytes == 2 * 4 * (24 * 8) + 8 * 24
    assert forward.sizes[:4] == (24 * 8, 50_000 * 8, 24, 8)
    backward = traced(nn.Embedding(50, 8), "aten::embedding_dense_backward", example=(ids,))
    # Rows are added up in a gradient that is as large as the table, and has to be made first.
    assert backward.bytes == 3 * 4 * (24 * 8) + 2 * 4 * (50 * 8) + 8 * 24


def numbers(*shape: int, stride: tuple[int, ...] | None = None) -> TensorSpec:
    return TensorSpec(shape, stride or spec(*shape).stride, "int64")


@pytest.mark.parametrize(
    ("op", "inputs", "out", "args", "whole"),
    [
        ("aten::index", [spec(50, 64), numbers(8)], spec(8, 64), (), True),
        ("aten::index", [spec(50, 64), numbers(8)], spec(50, 8), (), False),
        ("aten::index_select", [spec(50, 64), numbers(8)], spec(8, 64), (-2,), True),
        ("aten::index_select", [spec(50, 64), numbers(32)], spec(50, 32), (1,), False),
        ("aten::embedding", [spec(50, 64), numbers(8)], spec(8, 64), (-1, False, False), True),
    ],
)
def test_what_belongs_to_one_index_lies_side_by_side(
    op: str, inputs: list[TensorSpec], out: TensorSpec, args: tuple[Hashable, ...], whole: bool
) -> None:
    assert feature(work(op, inputs, [out], *args), "wide") == whole


def test_a_reduction_that_leaves_out_what_was_there_writes_it_first() -> None:
    operands = [spec(10, 8), numbers(50, 8, stride=(1, 0)), spec(50, 8)]
    with_it, without = (
        work("aten::scatter_reduce_", operands, [spec(10, 8)], 0, "amax", kept, in_place=True) for kept in (True, False)
    )
    assert amounts(with_it)["renewed"] == 0
    assert amounts(without)["renewed"] == 400


def test_an_index_that_is_broadcast_over_rows_moves_whole_rows() -> None:
    index = TensorSpec((50, 8), (1, 0), "int64")
    found = work("aten::scatter_add_", [spec(10, 8), index, spec(50, 8)], [spec(10, 8)], 0, in_place=True)
    assert found.family == "indexing"
    assert found.sizes[:4] == (400, 80, 50, 8)
    assert feature(found, "expanded") == 1


def test_overwriting_goes_element_by_element_and_a_number_counts_twice() -> None:
    index = TensorSpec((50, 64), (1, 0), "int64")
    rows = work("aten::scatter", [spec(10, 64), index, spec(50, 64)], [spec(10, 64)], 0)
    number = work("aten::scatter_", [spec(10, 64), index], [spec(10, 64)], 0, 0, in_place=True)
    assert number.op == "aten::scatter_.number"
    for found, moved in ((rows, 3200), (number, 6400)):
        assert found.sizes[:4] == (3200, 640, 50, 64)
        assert (amounts(found)["moved"], amounts(found)["moved_singly"]) == (moved, moved)
    added = work("aten::scatter_add", [spec(10, 64), index, spec(50, 64)], [spec(10, 64)], 0)
    assert amounts(added)["moved_singly"] == 0  # torch sorts the rows, and adds whole ones


@pytest.mark.parametrize("dtype", ["float32", "int64", "bool"])
def test_a_table_of_integers_is_no_index(dtype: str) -> None:
    table, index = spec(256, 50_000, dtype=dtype), numbers(256, 1)
    one_hot = work("aten::scatter_", [table, index], [table], 1, 1, in_place=True)
    assert one_hot.sizes[:4] == (256, 256 * 50_000, 256, 1)
    picked = work("aten::gather", [table, index], [spec(256, 1, dtype=dtype)], 1)
    assert picked.sizes[:4] == (256, 256 * 50_000, 256, 1)


def test_gradients_of_picked_rows_are_added_one_by_one_where_cores_share_them() -> None:
    def added(rows: int) -> float:
        class Picked(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.table = nn.Parameter(torch.randn(100, 64))

            def forward(self, index: Tensor) -> Tensor:
                return self.table[index]

        found = trace(make_workload(Picked(), None, example=(torch.randint(0, 100, (rows,)),), mode="train"))
        (put,) = [work for work in describe_step(found) if work.op == "aten::index_put.accumulate"]
        return amounts(put)["added_in_turns"]

    assert added(512) == 512 * 64 == GRAIN
    assert added(511) == 0


def test_what_an_op_by_index_is_made_of() -> None:
    added = work("aten::index_add_", [spec(10, 8), numbers(5), spec(5, 8)], [spec(10, 8)], 0, in_place=True)
    assert added.bytes == 4 * 3 * 40 + 8 * 5
    copied = work("aten::index_add", [spec(10, 8), numbers(5), spec(5, 8)], [spec(10, 8)], 0)
    assert copied.bytes == added.bytes + 8 * 80  # the table is copied first
    made = amounts(copied)
    names = ("moved", "moved_singly", "renewed", "table", "indices", "added_in_turns")
    assert [made[name] for name in names] == [40, 40, 0, 80, 5, 0]
    wide = work("aten::index_add", [spec(10, 16), numbers(5), spec(5, 16)], [spec(10, 16)], 0)
    assert (amounts(wide)["moved"], amounts(wide)["moved_singly"]) == (80, 0)
    assert feature(work("aten::index_select", [spec(50, 15), numbers(8)], [spec(8, 15)], 0), "wide") == 0
    assert work("aten::nonzero", [spec(9)], [numbers(4, 1)]).sizes[:4] == (4, 9, 1, 4)


def test_reading_one_number_moves_nothing() -> None:
    found = work("aten::_local_scalar_dense", [spec()], [])
    assert (found.family, found.flops, found.bytes) == ("view", 0, 0)


def test_a_view_moves_nothing() -> None:
    found = work("aten::transpose", [spec(64, 64)], [spec(64, 64, stride=(1, 64))], 0, 1, view=True)
    assert (found.family, found.flops, found.bytes) == ("view", 0, 0)


def test_the_largest_tensor_is_walked_once() -> None:
    found = work("mylib::anything", [spec(4), spec(3, 5)], [spec(2)])
    assert (found.family, found.flops, found.sizes[:2]) == ("other", 15, (15, 2))
    assert work("mylib::anything", [spec(4)], [spec(30)]).flops == 30


@pytest.mark.parametrize("op", ["aten::linalg_matrix_power", "aten::_ctc_loss", "aten::fft_hfft"])
def test_what_has_no_formula_is_other_even_where_it_looks_elementwise(op: str) -> None:
    assert family_of(op) == "other"
    assert work(op, [spec(4, 4)], [spec(4, 4)]).family == "other"
