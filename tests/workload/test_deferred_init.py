from __future__ import annotations

import copy
import dataclasses
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from placer.calibration.suite import entries
from placer.tracing import trace
from placer.tracing.trace_data import Trace
from placer.workload import make_workload
from placer.workload.deferred_init import LEAST_ELEMENTS, DeferredInit

WIDE = 512
assert WIDE * WIDE >= LEAST_ELEMENTS


def built(build: Callable[[], nn.Module]) -> tuple[nn.Module, DeferredInit]:
    deferred = DeferredInit()
    with deferred:
        return build(), deferred


def test_a_large_weight_is_drawn_when_asked_for() -> None:
    net, deferred = built(lambda: nn.Linear(WIDE, WIDE))
    assert deferred
    with torch.no_grad():
        net.weight.fill_(7.0)  # whatever is there before
    deferred.draw()
    assert not deferred
    assert net.weight.std().item() == pytest.approx((1 / 3 / WIDE) ** 0.5, rel=0.05)
    assert net.weight.requires_grad
    assert net.weight.is_leaf


def test_small_tensors_are_drawn_at_once() -> None:
    net, deferred = built(lambda: nn.Linear(8, 8))
    assert not deferred
    assert net.weight.std().item() > 0.0


def test_what_reads_a_weight_gets_its_values() -> None:
    with DeferredInit() as deferred:
        weight = torch.empty(WIDE, WIDE).normal_(3.0)
        mean = weight.mean().item()
        assert not deferred
        doubled = torch.empty(WIDE, WIDE).normal_(3.0).t() * 2.0
        other = torch.empty(WIDE, WIDE).normal_()
    assert mean == pytest.approx(3.0, rel=0.01)
    assert doubled.mean().item() == pytest.approx(6.0, rel=0.01)
    before = weight.clone()
    deferred.draw()
    assert torch.equal(weight, before)  # drawn once
    assert other.std().item() == pytest.approx(1.0, rel=0.01)


def test_changes_in_place_follow_the_draw() -> None:
    def build() -> nn.Module:
        net = nn.Embedding(WIDE, WIDE, padding_idx=3)
        with torch.no_grad():
            net.weight.mul_(0.02).clamp_(-0.04, 0.04)
            net.weight[5].fill_(9.0)
            net.weight.t().mul_(2.0)
        return net

    net, deferred = built(build)
    assert deferred
    deferred.draw()
    weight = net.weight.detach()
    assert weight[5].eq(18.0).all()
    assert torch.cat([weight[:5], weight[6:]]).std().item() == pytest.approx(0.04, rel=0.1)
    assert weight[4].abs().max().item() <= 0.08


def test_an_initialiser_that_reads_what_it_draws() -> None:
    net = nn.Linear(WIDE, WIDE)
    with DeferredInit() as deferred:
        nn.init.trunc_normal_(net.weight, std=0.02, a=-0.02, b=0.02)
        nn.init.orthogonal_(other := torch.empty(WIDE, WIDE))
    deferred.draw()
    assert 0.01 < net.weight.abs().max().item() <= 0.02
    assert torch.allclose(other @ other.T, torch.eye(WIDE), atol=1e-4)


def test_a_row_set_to_zero_stays_zero() -> None:
    net, deferred = built(lambda: nn.Embedding(WIDE, WIDE, padding_idx=3))
    deferred.draw()
    assert net.weight[3].eq(0.0).all()
    assert net.weight[4].ne(0.0).any()


@pytest.mark.parametrize("look", [
    lambda weight, path: torch.from_numpy(weight.detach().numpy()),
    lambda weight, path: torch.tensor(weight.tolist()),
    lambda weight, path: torch.from_dlpack(weight.detach()),
    lambda weight, path: copy.deepcopy(weight.detach()),
    lambda weight, path: (torch.save(weight, path), torch.load(path))[1],
    lambda weight, path: pickle.loads(pickle.dumps(weight)),
])  # fmt: skip
def test_what_leaves_torch_has_its_values(look: Callable[[Tensor, Path], Tensor], tmp_path: Path) -> None:
    with DeferredInit() as deferred:
        weight, other = nn.Linear(WIDE, WIDE).weight, nn.Linear(WIDE, WIDE).weight
        seen = look(weight, tmp_path / "weight.pt").clone()
    assert deferred
    deferred.draw()
    assert torch.equal(seen, weight)
    assert seen.std().item() == pytest.approx(other.std().item(), rel=0.05)


def test_loaded_weights_are_not_drawn_over(tmp_path: Path) -> None:
    trained = nn.Sequential(nn.Linear(WIDE, WIDE), nn.Linear(WIDE, WIDE))
    torch.save(trained.state_dict(), tmp_path / "weights.pt")

    def build() -> nn.Module:
        net = copy.deepcopy(nn.Sequential(nn.Linear(WIDE, WIDE), nn.Linear(WIDE, WIDE)))
        net.load_state_dict(torch.load(tmp_path / "weights.pt"))
        return net

    net, deferred = built(build)
    deferred.draw()
    for ours, theirs in zip(net.parameters(), trained.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_part_of_a_weight_copied_in_stays() -> None:
    def build() -> nn.Module:
        net = nn.Linear(WIDE, WIDE)
        with torch.no_grad():
            net.weight[:2].copy_(torch.ones(2, WIDE))
        return net

    net, deferred = built(build)
    deferred.draw()
    assert net.weight[:2].eq(1.0).all()
    assert net.weight[2].abs().max().item() < 1.0


def test_copies_have_the_values_of_their_original() -> None:
    net, deferred = built(lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(WIDE, 4, batch_first=True), 2))
    assert deferred
    deferred.draw()
    first, second = (part.linear1.weight for part in net.layers)
    assert torch.equal(first, second)
    assert first.std().item() == pytest.approx((1 / 3 / WIDE) ** 0.5, rel=0.05)


def test_a_copy_has_the_values_from_before_a_change() -> None:
    with DeferredInit() as deferred, torch.no_grad():
        original = torch.empty(WIDE, WIDE).normal_(3.0)
        copies = [original.clone() for _ in range(4)]
        original.mul_(2.0)
        copies[0].add_(10.0)
        copies[1].normal_(-1.0)
        original.normal_(7.0)
        copies.append(copies[2].clone().mul_(0.0))
    deferred.draw()
    means = [tensor.mean().item() for tensor in (original, *copies)]
    assert means == pytest.approx([7.0, 13.0, -1.0, 3.0, 3.0, 0.0], abs=0.02)
    assert torch.equal(copies[0], copies[3] + 10.0)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_dtypes(dtype: torch.dtype) -> None:
    net, deferred = built(lambda: nn.Linear(WIDE, WIDE, dtype=dtype))
    assert deferred
    deferred.draw()
    assert net.weight.dtype == dtype
    assert net.weight.float().std().item() == pytest.approx((1 / 3 / WIDE) ** 0.5, rel=0.05)


# Traces are the same either way.


class Odd(nn.Module):
    """What constructors do: buffers made of numbers, sizes that depend on a value, shared and half-width weights."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("positions", torch.arange(64).flip(0))
        self.register_buffer("scale", torch.linspace(0.0, 1.0, 5)[3] * torch.ones(WIDE))
        hidden = int(torch.tensor([3.0, 8.0]).max().item()) * 64
        self.table = nn.Embedding(1000, WIDE)
        self.mix = nn.Linear(WIDE, hidden)
        self.back = nn.Linear(hidden, WIDE).to(torch.bfloat16)
        self.head = nn.Linear(WIDE, 1000, bias=False)
        self.head.weight = self.table.weight

    def forward(self, ids: Tensor) -> Tensor:
        x = self.table(ids) * self.scale + self.table(self.positions[: ids.shape[1]])
        return self.head(self.back(self.mix(x).to(torch.bfloat16)).float())


class Reading(nn.Module):
    """Steps that read a value have to run, on weights that have values."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(WIDE, WIDE), nn.Linear(WIDE, WIDE)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        return self.second(x) if x.std().item() > 0.0 else x


def traces(build: Callable[[], nn.Module], example: Any, **options: Any) -> list[Trace]:
    """The trace of the model as it is, then of the model built with deferred draws."""
    deferred = DeferredInit()
    with deferred:
        second = build()
    workloads = [make_workload(net, example=example, mode="train", **options) for net in (build(), second)]
    trace(workloads[0])  # libraries fill caches of their own the first time
    return [trace(workloads[0]), trace(dataclasses.replace(workloads[1], draw=deferred.draw))]


@pytest.mark.parametrize("name", ["resnet18", "bert_small", "gpt2_tiny", "vit_small", "mlp_wide"])
def test_networks_of_the_suite_have_the_same_trace(name: str) -> None:
    entry = next(entry for entry in entries("full") if entry.name == name)
    if missing := entry.missing():
        pytest.skip(f"needs {missing[0]}")
    example = entry.example(entry.batches[0])
    before, after = traces(entry.build, example, optimizer=entry.optimizer, loss=entry.loss)
    assert after == before


def test_computed_buffers_and_tied_weights_give_the_same_trace() -> None:
    assert built(Odd)[1]
    before, after = traces(Odd, torch.randint(0, 1000, (2, 64)))
    assert after == before
    # The table once, though two layers have it.
    assert sum(t.numel for t in after.parameters) == 1000 * WIDE + 2 * WIDE * WIDE + 2 * WIDE


def test_a_step_that_has_to_run_finds_values() -> None:
    assert built(Reading)[1]
    before, after = traces(Reading, torch.randn(4, WIDE))
    assert after == before
    assert any("real run" in note for note in after.notes)
    assert any(call.layer == "second" for call in after.calls)  # taken, as the numbers differ from each other
