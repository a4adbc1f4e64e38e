"""Matrix products: FLOPs, sizes and flags."""

from __future__ import annotations

import pytest
from described import feature, spec, work

from placer.pricing.describe import amounts


def test_addmm_counts_the_product_and_moves_every_operand() -> None:
    found = work("aten::addmm", [spec(7), spec(3, 5), spec(5, 7)], [spec(3, 7)])
    assert (found.family, found.flops) == ("matmul", 2 * 3 * 5 * 7)
    assert found.bytes == 4 * (7 + 15 + 35 + 21)
    assert found.sizes[:4] == (1, 3, 7, 5)


def test_bmm_counts_the_batch_and_sees_transposed_operands() -> None:
    found = work("aten::bmm", [spec(4, 2, 3), spec(4, 3, 5, stride=(15, 1, 3))], [spec(4, 2, 5)])
    assert found.flops == 2 * 4 * 2 * 3 * 5
    assert (feature(found, "a_transposed"), feature(found, "b_transposed")) == (0, 1)


def test_a_matrix_vector_product() -> None:
    found = work("aten::mv", [spec(6, 8), spec(8)], [spec(6)])
    assert (found.flops, found.bytes) == (2 * 6 * 8, 4 * (48 + 8 + 6))


def test_what_a_product_is_made_of() -> None:
    found = work("aten::bmm", [spec(3, 20, 40), spec(3, 40, 50)], [spec(3, 20, 50)])
    assert found.sizes[:8] == (3, 20, 50, 40, 3 * 20 * 40, 3 * 40 * 50, 3 * 20 * 50, 20)
    made = amounts(found)
    assert made["padding_flops"] == pytest.approx(2 * 3 * 40 * (32 * 64 - 20 * 50))  # whole tiles of 16 x 16
    assert (made["rows"], made["depth"], made["further"]) == (60, 0, 2)
    weight = work("aten::mm", [spec(20, 1000, stride=(1, 20)), spec(1000, 30)], [spec(20, 30)])
    assert (amounts(weight)["depth"], amounts(weight)["further"]) == (1000, 0)


def test_products_with_one_row_or_column_or_operand_of_one_dimension() -> None:
    row = work("aten::mm", [spec(1, 8), spec(8, 5)], [spec(1, 5)])
    column = work("aten::mm", [spec(6, 8), spec(8, 1)], [spec(6, 1)])
    dot = work("aten::dot", [spec(8), spec(8)], [spec()])
    assert [(feature(w, "row"), feature(w, "column")) for w in (row, column, dot)] == [(1, 0), (0, 1), (1, 1)]
    assert (dot.flops, dot.sizes[:4]) == (16, (1, 1, 1, 8))
    assert feature(work("aten::mm", [spec(4, 1, stride=(1, 4)), spec(1, 4)], [spec(4, 4)]), "a_transposed") == 0
