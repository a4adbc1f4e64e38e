"""Everything that may be drawn builds, traces, runs, and stays within its limit."""

from __future__ import annotations

import statistics
import time
from random import Random
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from placer.calibration.benchmarks import PROPOSERS, convolution, networks, pooling
from placer.calibration.benchmarks.losses import LOSSES, loss_named
from placer.calibration.benchmarks.parts import InParts, Iterated
from placer.calibration.benchmarks.probe import Apply, Branch, Inner, Limit, block, log_int, log_uniform, tensor, widths
from placer.calibration.measuring.step import probe_step
from placer.pricing.describe import describe, describe_step, feature_names
from placer.pricing.step_context import Context
from placer.tracing import trace
from placer.workload.workload import make_workload

#: Some 50 ms of a small CPU: about what a default calibration allows.
LIMIT = Limit(flops=1e9, bytes=1e8)
PROBES = 15


@pytest.mark.parametrize("family", PROPOSERS)
def test_probes_build_trace_and_run(family: str) -> None:
    random = Random(f"probe {family}")
    too_large = 0
    for _ in range(PROBES):
        probe = PROPOSERS[family][0](random, LIMIT)
        assert probe.family == family
        module, args = probe.build(), probe.example()
        module.train(probe.mode == "train")
        optimizer = probe.optimizer or "sgd"
        traced = trace(
            make_workload(
                module, example=args, mode=probe.mode, optimizer=optimizer, loss=probe.loss, data="device"
            )
        )
        forward = [describe(c, Context.of(traced)) for c in traced.calls if c.phase == "forward"]
        assert forward, probe.name
        # The proposals' own counts are rough, and a step whose smallest draw is over the limit is still measured.
        too_large += sum(work.flops for work in forward) > 3 * LIMIT.flops
        step = probe_step(module, args, probe, time.perf_counter)
        step()
        step()
    assert too_large <= PROBES // 5


def test_a_larger_limit_gives_larger_probes() -> None:
    def flops(limit: Limit) -> float:
        random, total = Random(1), 0.0
        for _ in range(12):
            probe = PROPOSERS["matmul"][0](random, limit)
            with torch.device("meta"):
                step = trace(make_workload(probe.build(), example=probe.example(), mode="infer", data="device"))
            total += sum(describe(c, Context.of(step)).flops for c in step.calls)
        return total

    assert flops(Limit(3e10, 3e9)) > 2 * flops(LIMIT)


def _branch(flops: float) -> Branch:
    return Branch(f"{flops:g}", nn.Identity, lambda grad: tensor(2, grad=grad), flops, 0.0)


def test_a_block_keeps_within_its_limit() -> None:
    for seed in range(30):
        drawn = block("x", Random(seed), Limit(1000.0, 1.0), lambda r: _branch(log_uniform(r, 1, 1e5)), most=4)
        total = sum(float(name) for name in drawn.name.split(", "))
        assert total <= 2000.0, drawn.name


def test_a_block_takes_the_smallest_where_nothing_is_small_enough() -> None:
    drawn = block("x", Random(0), Limit(1.0, 1.0), lambda r: _branch(r.choice([7.0, 70.0])))
    assert drawn.name == "7"


def test_what_has_no_gradient_is_not_trained() -> None:
    for seed in range(20):
        still = Branch("still", nn.Identity, lambda grad: tensor(2, grad=grad), 1.0, 1.0, trains=False)
        assert block("x", Random(seed), Limit(1e6, 1e6), lambda r, b=still: b).mode == "infer"  # type: ignore[misc]


def test_a_training_block_has_a_gradient_to_compute() -> None:
    for seed in range(20):
        drawn = block("x", Random(seed), Limit(1e6, 1e6), lambda r: _branch(1.0), training=1.0)
        assert drawn.mode == "train"
        assert any(isinstance(x, Tensor) and x.requires_grad for x in drawn.example())


def test_most_layers_are_trained_as_inside_a_network_and_some_as_the_last_one() -> None:
    """The gradient of a sum is one number expanded to many, which hardly any op of a network gets."""
    layer = Branch("linear", lambda: nn.Linear(8, 8), lambda grad: tensor(4, 8, grad=grad), 1.0, 1.0)
    expanded = []
    for seed in range(30):
        drawn = block("x", Random(seed), Limit(1e6, 1e6), lambda _: layer, training=1.0)
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


def test_the_larger_of_networks_that_fit_is_taken() -> None:
    """Most that are drawn are far smaller than what they may be: then only small ones would ever be measured."""
    def parameters(fitting: int) -> float:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(networks, "FITTING", fitting)
            drawn = [networks.propose(Random(seed), LIMIT) for seed in range(40)]
        return statistics.median(sum(p.numel() for p in probe.build().parameters()) for probe in drawn)

    assert parameters(3) > parameters(1)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("shape", [(2, 4), (2, 5, 4), (4,)])
def test_networks_are_trained_by_losses(name: str, shape: tuple[int, ...]) -> None:
    loss = loss_named(name)
    assert loss is not None
    traced = trace(make_workload(nn.Linear(4, 3), example=(torch.randn(shape),), mode="train", loss=loss))
    ran = {call.op.removeprefix("aten::") for call in traced.calls if call.phase == "loss"}
    expected = {"cross_entropy": "nll_loss_forward", "bce": "binary_cross_entropy_with_logits", "l1": "abs"}
    assert expected.get(name, f"{name}_loss") in ran
    several = [torch.ones(2, requires_grad=True), torch.ones(3, requires_grad=True)]
    assert loss(several).item() == 5.0  # what is not one tensor is summed


def test_networks_are_drawn_with_all_losses_and_with_none() -> None:
    drawn = [networks.propose(Random(seed), LIMIT) for seed in range(200)]
    names = {probe.name.partition(" ")[2].partition(" ")[2] for probe in drawn}
    assert names == {"", *LOSSES}
    assert all(probe.mode == "train" for probe in drawn if probe.loss)


def test_a_network_of_one_layer_is_that_layer() -> None:
    drawn = [networks.propose(Random(seed), LIMIT) for seed in range(60)]
    sequences: dict[str, set[bool]] = {}
    for probe in drawn:
        sequences.setdefault(probe.name.split()[0], set()).add(isinstance(probe.build(), nn.Sequential))
    assert sequences["cnn"] == sequences["transformer"] == {True}
    # A solver is one module, which calls another again and again.
    assert sequences["single"] == sequences["solver"] == {False}


def test_parts_of_a_batch_are_put_together_again() -> None:
    rows = torch.randn(7, 3)
    assert torch.equal(InParts(nn.Identity(), 3)(rows), rows)
    lengths = InParts(Apply(lambda part: torch.tensor([len(part)])), 3)(rows)
    assert lengths.tolist() == [3, 2, 2]  # never one row beside larger parts: it has no variance to normalize by
    drawn = [networks.propose(Random(seed), LIMIT).build() for seed in range(60)]
    assert any(isinstance(module, InParts) for built in drawn for module in built.modules())


@pytest.mark.parametrize("stacked", [False, True])
def test_a_solver_that_keeps_the_time_in_tensors_follows_the_same_path(stacked: bool) -> None:
    torch.manual_seed(0)
    field, start = nn.Linear(3, 3), torch.randn(2, 3)
    with torch.no_grad():
        plain, clocked = (Iterated(field, 10, 3, stacked, clocked)(start) for clocked in (False, True))
    torch.testing.assert_close(plain, clocked)
    drawn = [networks.propose(Random(seed), LIMIT).build() for seed in range(200)]
    solvers = [module for built in drawn for module in built.modules() if isinstance(module, Iterated)]
    assert {module.clocked for module in solvers} == {False, True}


def test_convolutions_are_drawn_as_networks_of_images_have_them() -> None:
    random = Random(0)
    with torch.device("meta"):
        layers: list[Any] = [convolution._draw(random).build() for _ in range(500)]
    assert {layer.kernel_size[0] for layer in layers} == {1, 2, 3, 4, 5, 7, 8, 16}
    patches = [layer for layer in layers if layer.stride == layer.kernel_size != (1,) * len(layer.stride)]
    assert {layer.transposed for layer in patches if set(layer.padding) == {0}} == {False, True}
    # Deep in a network weights are most of what is read: a million of them is what 3x3 kernels of 340 channels have.
    assert sum(layer.weight.numel() > 1e6 for layer in layers) > 25


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


def test_values_are_normal_numbers() -> None:
    x = tensor(100, 100, grad=True, dtype=torch.bfloat16)
    assert (x.dtype, x.requires_grad) == (torch.bfloat16, True)
    assert 0.9 < float(x.detach().float().std()) < 1.1


def test_most_maxima_are_taken_of_what_has_passed_a_rectifier() -> None:
    random = Random(0)
    drawn = [pooling._draw(random) for _ in range(60)]
    maxima = [branch for branch in drawn if branch.name.startswith("max")]
    rectified = [branch for branch in maxima if float(branch.example(False).min()) == 0.0]
    assert 0.5 < len(rectified) / len(maxima) < 0.9
    assert all(branch.example(True).requires_grad for branch in drawn)
    assert all(float(branch.example(False).min()) < 0.0 for branch in drawn if branch not in maxima)
