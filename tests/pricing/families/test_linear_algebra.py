"""Factorisations and distances: cubes, and products of two sets."""

from __future__ import annotations

from described import spec, work

from placer.pricing.describe import amounts


def test_a_factorisation_is_a_cube_of_each_matrix() -> None:
    found = work("aten::linalg_inv_ex", [spec(3, 8, 8)], [spec(3, 8, 8), spec(3)])
    assert (found.family, found.flops) == ("linear_algebra", 2 * 3 * 8**3)
    assert found.sizes[:4] == (3, 8, 8, 8)
    assert (amounts(found)["squares"], amounts(found)["matrices"]) == (3 * 64, 3)


def test_the_shorter_side_of_a_matrix_is_eliminated_and_vectors_do_not_count() -> None:
    found = work("aten::linalg_qr", [spec(100), spec(2, 6, 4)], [spec(2, 6, 4), spec(2, 4, 4)])
    assert found.sizes[:4] == (2, 6, 4, 4)
    assert found.flops == 2 * 2 * 6 * 4 * 4


def test_distances_are_between_all_pairs() -> None:
    a, b = spec(2, 5, 3), spec(2, 7, 3)
    found = work("aten::_cdist_forward", [a, b], [spec(2, 5, 7)], 2.0)
    assert found.sizes[:4] == (2, 5, 7, 3)
    assert found.flops == 2 * 2 * 5 * 7 * 3
    gradient = work("aten::_cdist_backward", [spec(2, 5, 7), a, b, spec(2, 5, 7)], [a], 2.0)
    assert (gradient.flops, gradient.sizes[:4]) == (found.flops, found.sizes[:4])
