from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from placer.calibration.suite.reference import datasets

MAKERS: dict[str, Callable[[int], tuple[Tensor, Tensor]]] = {
    "lorenz": lambda n: datasets.lorenz(n, points=5),
    "surface": datasets.surface,
    "features": datasets.features,
    "series": lambda n: datasets.series(n, 30, 12),
    "digits": datasets.digits,
    "one_hot_digits": datasets.one_hot_digits,
}


@pytest.mark.parametrize("name", MAKERS)
def test_a_data_set_is_the_same_every_time_whatever_was_drawn_before(name: str) -> None:
    first = MAKERS[name](6)
    torch.rand(3)
    state = torch.get_rng_state()
    second = MAKERS[name](6)
    assert torch.equal(torch.get_rng_state(), state)
    for a, b in zip(first, second, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)
        assert torch.isfinite(a.float()).all()


def test_shapes() -> None:
    shapes = {name: [tuple(part.shape) for part in make(6)] for name, make in MAKERS.items()}
    assert shapes == {
        "lorenz": [(6, 3), (5, 6, 3)],
        "surface": [(6, 2), (6, 1)],
        "features": [(6, 84), (6, 1)],
        "series": [(6, 30, 12), (6, 1)],
        "digits": [(6, 1, 28, 28), (6,)],
        "one_hot_digits": [(6, 1, 28, 28), (6, 10)],
    }


def test_the_lorenz_trajectory_obeys_its_equations() -> None:
    start, path = datasets.lorenz(2, points=201)
    torch.testing.assert_close(path[0], start)
    slope = (path[2:] - path[:-2]) / 1e-2
    x, y, z = path[1:-1].unbind(-1)
    expected = torch.stack([10 * (y - x), x * (28 - z) - y, x * y - 8 / 3 * z], dim=-1)
    torch.testing.assert_close(slope, expected, rtol=0.02, atol=0.5)


def test_targets_vary_with_what_they_are_to_be_told_from() -> None:
    for name in ("surface", "features", "series"):
        _, targets = MAKERS[name](500)
        assert targets.std() > 0.1, name
    _, labels = datasets.digits(200)
    assert set(labels.tolist()) == set(range(10))
    _, rows = datasets.one_hot_digits(200)
    assert torch.equal(rows.argmax(dim=1), labels)
