"""Where the backward pass of a network from scratch goes, told before anything runs on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

import placer
from placer.calibration.suite.entry import Supervised, own_loss
from placer.calibration.suite.reference import from_scratch
from placer.calibration.suite.reference.datasets import one_hot_digits
from placer.explanation import Explanation
from placer.pricing.describe import feature_names
from placer.profile.profile import FamilyFit, Profile

#: What the account reported for the index assignment, and the positions it wrote: 8 images, 10 filters, 13 × 13.
SECONDS, POSITIONS = 9.5e-3, 8 * 10 * 13 * 13


@pytest.fixture
def accounts_gpu(handmade_profile: Profile) -> Profile:
    """The accelerator made by hand, on which an index assignment costs as much per position as in the account."""
    names = ("flops", "bytes", *feature_names("indexing"))
    op = "aten::index_put"
    indexing = FamilyFit(
        feature_names=names, ops=(op,), x=((0.0,) * len(names),), op_index=(0,), y=(0.0,), point_noise=(0.0,),
        length_scales=(1.0,) * len(names), op_scale=1.0, mean=0.0, signal=0.01, noise=0.01,
        parameters={"latency": 5e-6, f"latency@{op}": 5e-6, f"indices@{op}": SECONDS / POSITIONS},
        measured=1,
    )  # fmt: skip
    cpu, cuda = handmade_profile.fits
    return replace(handmade_profile, fits=(cpu, replace(cuda, families={"indexing": indexing})))


def explained(build: Callable[[], Supervised], profile: Profile) -> Explanation:
    return placer.explain(build(), example=one_hot_digits(8), loss=own_loss, optimizer="sgd", profile=profile)


def seconds(explanation: Explanation, layer: str, phase: str, device: str) -> float:
    return sum(row.devices[device] for row in explanation.layers if (row.name, row.phase) == (f"model.{layer}", phase))


def test_the_index_assignment_of_the_pooling_layer_is_named(accounts_gpu: Profile) -> None:
    found = explained(from_scratch.by_index, accounts_gpu)
    (worst,) = [row for row in found.bottlenecks if (row.device, row.phase) == ("cuda", "backward")]
    assert (worst.layer, worst.op) == ("model.pool", "aten::index_put_")
    assert worst.seconds / worst.phase_seconds > 0.9
    assert worst.seconds == pytest.approx(SECONDS, rel=0.1)
    assert "aten::index_put_ in model.pool takes" in found.to_text()
    assert "of the backward pass on cuda" in found.to_text(width=300)


def test_with_a_mask_it_is_gone(accounts_gpu: Profile) -> None:
    index, mask = (explained(build, accounts_gpu) for build in (from_scratch.by_index, from_scratch.by_mask))
    assert all(row.layer != "model.pool" for row in mask.bottlenecks)
    assert not any("index_put" in row.op for row in mask.ops)
    assert seconds(mask, "pool", "backward", "cuda") < seconds(index, "pool", "backward", "cuda") / 50
    assert mask.devices["cuda"].step_seconds < index.devices["cuda"].step_seconds


def test_the_step_splits_by_layer_into_forward_backward_and_update(accounts_gpu: Profile) -> None:
    found = explained(from_scratch.by_index, accounts_gpu)
    for device in ("cpu", "cuda"):
        for layer in ("conv", "relu1", "pool", "dense1", "relu2", "dense2"):
            assert seconds(found, layer, "forward", device) > 0.0
            assert seconds(found, layer, "backward", device) > 0.0
            updated = layer in ("conv", "dense1", "dense2")
            assert (seconds(found, layer, "optimizer", device) > 0.0) == updated
        total = sum(row.devices[device] for row in found.layers)
        assert total == pytest.approx(found.devices[device].components["compute"])


def test_both_poolings_train_to_the_same_weights() -> None:
    trained = []
    for build in (from_scratch.by_index, from_scratch.by_mask):
        torch.manual_seed(0)
        model = build()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        for _ in range(3):
            optimizer.zero_grad()
            model(*one_hot_digits(8)).backward()
            optimizer.step()
        trained.append([parameter.detach() for parameter in model.parameters()])
    for by_index, by_mask in zip(*trained, strict=True):
        torch.testing.assert_close(by_index, by_mask)


def test_dropout_acts_in_training_only() -> None:
    model = from_scratch.large_by_index().eval()
    images, targets = one_hot_digits(2)
    with torch.no_grad():
        assert torch.equal(model(images, targets), model(images, targets))
        model.train()
        assert not torch.equal(model(images, targets), model(images, targets))
