"""Matrix products: FLOPs, sizes and flags."""

from __future__ import annotations

from described import feature, spec, work


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
