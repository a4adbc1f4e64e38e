"""Probes of one family: blocks within their limit, trained as inside a network, and random sizes."""

from __future__ import annotations

from random import Random

import torch
from torch import Tensor, nn

from placer.calibration.benchmarks.probe import Branch, Inner, Limit, block, log_int, log_uniform, tensor, widths
from placer.pricing.describe import describe_step, feature_names
from placer.tracing import trace
from placer.workload import make_workload


def _branch(flops: float) -> Branch:
    return Branch(f"{flops:g}", nn.Identity, (2,), flops, 0.0)


def test_a_block_keeps_within_its_limit() -> None:
    for seed in range(30):
        drawn = block(
            Random(seed), Limit(1000.0, 1.0), family="x", draw=lambda r, _: _branch(log_uniform(r, 1, 1e5)), most=4
        )
        total = sum(float(name) for name in drawn.name.split(", "))
        assert total <= 2000.0, drawn.name


def test_a_block_takes_the_smallest_where_nothing_is_small_enough() -> None:
    drawn = block(Random(0), Limit(1.0, 1.0), family="x", draw=lambda r, _limit: _branch(r.choice([7.0, 70.0])))
    assert drawn.name == "7"


def test_what_has_no_gradient_is_not_trained() -> None:
    for seed in range(20):
        still = Branch("still", nn.Identity, (2,), 1.0, 1.0, trains=False)
        assert block(Random(seed), Limit(1e6, 1e6), family="x", draw=lambda _random, _limit, b=still: b).mode == "infer"  # type: ignore[misc]


def test_a_training_block_has_a_gradient_to_compute() -> None:
    for seed in range(20):
        drawn = block(Random(seed), Limit(1e6, 1e6), family="x", draw=lambda r, _limit: _branch(1.0), training=1.0)
        assert drawn.mode == "train"
        assert any(isinstance(x, Tensor) and x.requires_grad for x in drawn.example())


def test_most_layers_are_trained_as_inside_a_network_and_some_as_the_last_one() -> None:
    """The gradient of a sum is one number expanded to many, which hardly any op of a network gets."""
    layer = Branch("linear", lambda: nn.Linear(8, 8), (4, 8), 1.0, 1.0)
    expanded = []
    for seed in range(30):
        drawn = block(Random(seed), Limit(1e6, 1e6), family="x", draw=lambda _random, _limit: layer, training=1.0)
        traced = trace(make_workload(drawn.build(), example=drawn.example(), mode="train", data="device"))
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
    assert min(values) >= 4
    assert max(values) <= 1024
    assert {value.bit_length() for value in values} >= set(range(3, 11))
    assert all(0.5 <= log_uniform(random, 0.5, 2.0) <= 2.0 for _ in range(100))


def test_widths_are_often_all_multiples_of_sixteen() -> None:
    random = Random(0)
    drawn = [widths(random, 4, 1024, 3) for _ in range(400)]
    assert {len(sizes) for sizes in drawn} == {3}
    assert min(map(min, drawn)) >= 4
    assert max(map(max, drawn)) <= 1024
    even = sum(all(size % 16 == 0 for size in sizes) for sizes in drawn)
    assert 0.4 * 400 < even < 0.8 * 400


def test_arithmetic_and_traffic_share_one_limit() -> None:
    limit = Limit(100.0, 10.0)
    assert limit.admits(50.0, 5.0)
    assert not limit.admits(60.0, 5.0)
    assert limit.share(0.5) == Limit(50.0, 5.0)


def test_one_branch_keeps_within_its_own_limit() -> None:
    limit = Limit(1e6, 1e6, branch=50.0)
    for seed in range(20):
        drawn = block(Random(seed), limit, family="x", draw=lambda r, _limit: _moving(r.choice([7.0, 70.0])))
        assert set(drawn.name.split(", ")) == {"7"}


def _moving(moved: float) -> Branch:
    return Branch(f"{moved:g}", nn.Identity, (2,), 0.0, moved)


def test_values_are_normal_numbers() -> None:
    x = tensor(100, 100, grad=True, dtype=torch.bfloat16)
    assert (x.dtype, x.requires_grad) == (torch.bfloat16, True)
    assert 0.9 < float(x.detach().float().std()) < 1.1
