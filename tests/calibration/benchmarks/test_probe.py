"""Probes of one family: blocks within their limit, trained as inside a network, and random sizes."""

from __future__ import annotations

from random import Random
from typing import Any

from torch import Tensor, nn

from placer.calibration.benchmarks.probe import (
    Branch,
    Inner,
    Limit,
    Probe,
    block,
    log_uniform,
)

LARGE = Limit(1e6, 1e6)


def branch(flops: float, moved: float = 0.0, **more: Any) -> Branch:
    return Branch(f"{flops + moved:g}", nn.Identity, (2,), flops, moved, **more)


def drawn(seed: int, draw: Any, limit: Limit = LARGE, **more: Any) -> Probe:
    return block(Random(seed), limit, family="x", draw=draw, **more)


def test_a_block_keeps_within_its_limit_and_takes_the_smallest_where_nothing_is_small_enough() -> None:
    for seed in range(30):
        probe = drawn(seed, lambda r, _: branch(log_uniform(r, 1, 1e5)), Limit(1000.0, 1.0), most=4)
        assert sum(float(name) for name in probe.name.split(", ")) <= 2000.0, probe.name
        narrow = drawn(seed, lambda r, _: branch(0.0, r.choice([7.0, 70.0])), Limit(1e6, 1e6, branch=50.0))
        assert set(narrow.name.split(", ")) == {"7"}
    assert drawn(0, lambda r, _: branch(r.choice([7.0, 70.0])), Limit(1.0, 1.0)).name == "7"


def test_what_is_trained_has_a_gradient_to_compute_and_most_layers_are_trained_as_inside_a_network() -> None:
    inner = []
    for seed in range(20):
        assert drawn(seed, lambda *_: branch(1.0, 1.0, trains=False)).mode == "infer"
        probe = drawn(seed, lambda *_: branch(1.0), training=1.0)
        assert probe.mode == "train"
        assert any(isinstance(x, Tensor) and x.requires_grad for x in probe.example())
        inner += [isinstance(module, Inner) for module in probe.build().get_submodule("branches").children()]
    assert 0.7 < sum(inner) / len(inner) < 0.9
