"""Probes of one family: blocks within their limit, trained as inside a network, and random sizes."""

from __future__ import annotations

from random import Random
from typing import Any

import torch
from torch import Tensor, nn

from placer.calibration.benchmarks.layers import draw_convolution, draw_pooling
from placer.calibration.benchmarks.probe import (
    Branch,
    Inner,
    Limit,
    Probe,
    block,
    log_int,
    log_uniform,
    tensor,
    widths,
)
from placer.pricing.describe import describe_step, feature_names
from placer.tracing import trace_here
from placer.workload import make_workload

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


def test_arithmetic_and_traffic_share_one_limit() -> None:
    limit = Limit(100.0, 10.0)
    assert limit.admits(50.0, 5.0)
    assert not limit.admits(60.0, 5.0)
    assert limit.share(0.5) == Limit(50.0, 5.0)


def test_what_is_trained_has_a_gradient_to_compute() -> None:
    for seed in range(20):
        assert drawn(seed, lambda *_: branch(1.0, 1.0, trains=False)).mode == "infer"
        probe = drawn(seed, lambda *_: branch(1.0), training=1.0)
        assert probe.mode == "train"
        assert any(isinstance(x, Tensor) and x.requires_grad for x in probe.example())


def test_most_layers_are_trained_as_inside_a_network_and_some_as_the_last_one() -> None:
    """The gradient of a sum is one number expanded to many, which hardly any op of a network gets."""
    layer = Branch("linear", lambda: nn.Linear(8, 8), (4, 8), 1.0, 1.0)
    expanded = []
    for seed in range(20):
        probe = drawn(seed, lambda *_: layer, training=1.0)
        traced = trace_here(make_workload(probe.build(), batch=probe.example(), mode="train", data="device"))
        works = zip(traced.calls, describe_step(traced), strict=True)
        products = [work for call, work in works if call.phase == "backward" and work.family == "matmul"]
        expanded += [work.flags[feature_names("matmul").index("repeated") - len(work.sizes)] for work in products]
    assert len(expanded) > 100
    assert 0.1 < sum(expanded) / len(expanded) < 0.3


def test_what_follows_a_layer_leaves_the_rest_of_its_output_alone() -> None:
    inner = Inner(nn.LSTM(4, 8), torch.relu)
    outputs, (hidden, _) = inner(torch.randn(3, 2, 4))
    assert min(outputs.min(), hidden.min()) >= 0.0
    with torch.no_grad():
        assert inner(torch.randn(3, 2, 4))[0].min() < 0.0  # nothing is trained: nothing follows
    assert Inner(nn.Identity(), torch.relu)(torch.arange(3)).tolist() == [0, 1, 2]


def test_log_draws_stay_in_range_and_reach_every_octave() -> None:
    random = Random(0)
    values = [log_int(random, 4, 1024) for _ in range(500)]
    assert (min(values) >= 4, max(values) <= 1024) == (True, True)
    assert {value.bit_length() for value in values} >= set(range(3, 11))
    assert all(0.5 <= log_uniform(random, 0.5, 2.0) <= 2.0 for _ in range(100))


def test_widths_are_often_all_multiples_of_sixteen() -> None:
    random = Random(0)
    found = [widths(random, 4, 1024, 3) for _ in range(400)]
    assert {len(sizes) for sizes in found} == {3}
    assert 4 <= min(map(min, found)) < max(map(max, found)) <= 1024
    assert 0.4 * 400 < sum(all(size % 16 == 0 for size in sizes) for sizes in found) < 0.8 * 400


def test_values_are_normal_numbers_or_what_is_made_of_them() -> None:
    x = tensor(100, 100, grad=True, dtype=torch.bfloat16)
    assert (x.dtype, x.requires_grad) == (torch.bfloat16, True)
    assert 0.9 < float(x.detach().float().std()) < 1.1
    rows = branch(1.0, made=lambda x: torch.zeros(x.shape, dtype=torch.long)).in_half(torch.float16, 0.5)
    assert (rows.example(True).dtype, rows.example(True).requires_grad) == (torch.long, False)
    half = branch(1.0).in_half(torch.float16, 0.5)
    assert (half.example(True).dtype, half.example(True).requires_grad, half.flops) == (torch.float16, True, 0.5)


def test_convolutions_are_drawn_as_networks_of_images_have_them() -> None:
    random = Random(0)
    with torch.device("meta"):
        layers: list[Any] = [draw_convolution(random, Limit(1e9, 1e8)).build() for _ in range(500)]
    assert {layer.kernel_size[0] for layer in layers} == {1, 2, 3, 4, 5, 7, 8, 16}
    patches = [layer for layer in layers if layer.stride == layer.kernel_size != (1,) * len(layer.stride)]
    assert {layer.transposed for layer in patches if set(layer.padding) == {0}} == {False, True}
    # Deep in a network weights are most of what is read: a million of them is what 3x3 kernels of 340 channels have.
    assert sum(layer.weight.numel() > 1e6 for layer in layers) > 25


def test_most_maxima_are_taken_of_what_has_passed_a_rectifier() -> None:
    random = Random(0)
    found = [draw_pooling(random, Limit(1e9, 1e6)) for _ in range(60)]
    maxima = [branch for branch in found if branch.name.startswith("max")]
    assert 0.5 < sum(branch.made is torch.relu for branch in maxima) / len(maxima) < 0.9
    assert {branch.made for branch in found if branch not in maxima} == {None}
    assert all(branch.example(True).requires_grad for branch in found[:10])
