from __future__ import annotations

import pytest

from placer.explanation.icicle import cells
from placer.explanation.rows import LayerRow

ROWS = [
    LayerRow("a.x", "forward", {"cpu": 1.0, "cuda": 3.0}, {"cuda": 3.0}),
    LayerRow("a.x", "backward", {"cpu": 1.0, "cuda": 1.0}),
    LayerRow("a", "forward", {"cpu": 2.0}),
    LayerRow("b", "forward", {"cpu": 4.0}),
    LayerRow("c", "forward", {"cpu": 1e-6}),
]


def test_a_layer_lies_within_the_one_above_and_beside_its_siblings() -> None:
    found = {cell.path: cell for cell in cells(ROWS, "cpu")}
    assert list(found) == ["", "a", "a.x", "b"]  # c would be less than a pixel
    assert (found[""].x, found[""].width) == (0.0, 1.0)
    assert (found["a"].x, found["a"].width) == (0.0, pytest.approx(0.5))
    assert (found["a.x"].x, found["a.x"].width, found["a.x"].depth) == (0.0, pytest.approx(0.25), 2)
    assert (found["b"].x, found["b"].width) == (pytest.approx(0.5), pytest.approx(0.5))


def test_guesses_are_shares_of_a_layer() -> None:
    found = {cell.path: cell for cell in cells(ROWS, "cuda")}
    assert found["a.x"].guess == pytest.approx(0.75)
    assert all(cell.guess == 0.0 for cell in cells(ROWS, "cpu"))


def test_a_device_without_time_has_no_cells() -> None:
    assert cells(ROWS, "mps") == []
