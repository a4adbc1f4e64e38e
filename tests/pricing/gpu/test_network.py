"""The learnt part: evaluated as written down, for ops and GPUs that are known and for others."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from placer.pricing.gpu import network
from placer.pricing.gpu.network import UNTRIED_SIGMA, USUAL, Network, edition, networks
from placer.pricing.gpu.rows import COLUMNS


def silu(x: float) -> float:
    return float(x / (1.0 + np.exp(-x)))


def handmade(bias: float = 0.1) -> Network:
    """One input, one number of a GPU, one of a label, two layers of one unit and the last."""
    first = np.array([[0.5], [2.0], [1.0]]), np.array([0.25])
    second = np.array([[1.5]]), np.array([-0.5])
    last = np.array([[0.5]]), np.array([bias])
    return Network(
        low=np.array([0.0]), high=np.array([10.0]), mean=np.array([4.0]), scale=np.array([2.0]),
        gpus={"Tesla T4": np.array([0.3])},
        labels={"elementwise:add": np.array([0.7]), "elementwise:": np.array([-0.2]), "": np.array([0.05])},
        trust={"elementwise:add": 1.0, "elementwise:": 0.7, "": 0.5}, layers=(first, second, last), sigma=(0.1, 0.4),
    )  # fmt: skip


def by_hand(x: float, gpu: float, label: float) -> float:
    hidden = silu(0.5 * (min(max(x, 0.0), 10.0) - 4.0) / 2.0 + 2.0 * gpu + label + 0.25)
    return 0.5 * silu(1.5 * hidden - 0.5) + 0.1


@pytest.mark.parametrize("x", [-3.0, 0.0, 6.0, 10.0, 99.0])
def test_it_is_evaluated_as_by_hand_and_extrapolates_nothing(x: float) -> None:
    learnt, sigma = handmade().evaluate(np.array([[x]]), ["elementwise:add"], "Tesla T4")
    assert learnt == pytest.approx([by_hand(x, 0.3, 0.7)])
    assert sigma.tolist() == [0.1]


@pytest.mark.parametrize(("label", "number", "trust"), [
    ("elementwise:add", 0.7, 1.0), ("elementwise:never_seen", -0.2, 0.7), ("family_never_seen:op", 0.05, 0.5),
    ("convolution", 0.05, 0.5),
])  # fmt: skip
def test_an_unknown_op_is_taken_as_its_family_and_an_unknown_family_as_any_op(
    label: str, number: float, trust: float
) -> None:
    learnt, sigma = handmade().evaluate(np.array([[3.0]]), [label], "Tesla T4")
    assert learnt == pytest.approx([USUAL + trust * (by_hand(3.0, 0.3, number) - USUAL)])
    assert sigma == pytest.approx([np.hypot(0.1, (1.0 - trust) * UNTRIED_SIGMA)])


def test_an_unknown_gpu_has_no_numbers_and_more_doubt() -> None:
    found = handmade()
    learnt, sigma = found.evaluate(np.array([[3.0]]), ["elementwise:add"], "Apple M1")
    assert learnt == pytest.approx([by_hand(3.0, 0.0, 0.7)])
    assert sigma.tolist() == [0.4]
    assert (found.knows("Tesla T4"), found.knows("Apple M1")) == (True, False)


def test_rows_are_evaluated_each_on_its_own() -> None:
    x, labels = np.array([[1.0], [5.0], [9.0]]), ["elementwise:add", "elementwise:mul", "softmax:_softmax"]
    together = handmade().evaluate(x, labels, "Tesla T4")[0]
    alone = [handmade().evaluate(x[i : i + 1], labels[i : i + 1], "Tesla T4")[0][0] for i in range(3)]
    assert together == pytest.approx(alone)


def test_there_is_one_for_every_kind_of_row() -> None:
    found = networks()
    assert set(found) == set(COLUMNS)
    for kind, each in found.items():
        assert "" in each.labels, kind
        assert 0.0 < each.sigma[0] <= each.sigma[1] < 1.0, kind
        arrays = [each.low, each.high, each.mean, each.scale, *each.gpus.values(), *each.labels.values()]
        assert all(np.isfinite(a).all() for a in [*arrays, *(part for layer in each.layers for part in layer)]), kind
        assert (each.scale > 0.0).all(), kind
        assert (each.low <= each.high).all(), kind


def test_without_the_file_there_are_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert edition() > 0.0
    monkeypatch.setattr(network, "FILE", tmp_path / "published.json")
    for cached in (networks, edition):
        cached.cache_clear()
    try:
        assert (networks(), edition()) == ({}, 0.0)
    finally:
        for cached in (networks, edition):
            cached.cache_clear()


def test_the_file_counts_the_rows_of_gpus_that_are_in_the_catalog() -> None:
    from placer.profile import gpus

    rows = json.loads(network.FILE.read_text(encoding="utf-8"))["rows"]
    assert rows
    assert set(rows) <= set(gpus())
    assert all(isinstance(count, int) and count > 0 for count in rows.values())
    assert {name for each in networks().values() for name in each.gpus} == set(rows)
