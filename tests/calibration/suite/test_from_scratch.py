"""Networks from scratch: their passes against torch's own, and where their backward pass goes, told before it runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import placer
from placer.calibration.suite.entry import Supervised, own_loss
from placer.calibration.suite.reference import from_scratch
from placer.calibration.suite.reference.datasets import one_hot_digits
from placer.explanation import Explanation
from placer.pricing.describe import fitted_features
from placer.profile.profile import FamilyFit, Profile

#: What the account reported for the index assignment, and the positions it wrote: 8 images, 10 filters, 13 × 13.
SECONDS, POSITIONS = 9.5e-3, 8 * 10 * 13 * 13
POOLINGS = (from_scratch.MaxPoolByIndex, from_scratch.MaxPoolByMask)


def gradients(function: Any, *inputs: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
    """The result, and the gradients of a weighted sum of it (so that they differ from place to place)."""
    leaves = [tensor.clone().requires_grad_() for tensor in inputs]
    out = function(*leaves)
    weights = torch.randn(out.shape, generator=torch.Generator().manual_seed(1), dtype=out.dtype)
    return out, torch.autograd.grad((out * weights).sum(), leaves)


@pytest.mark.parametrize(("ours", "torchs", "shapes"), [
    (from_scratch.Convolution.apply, F.conv2d, [(2, 3, 8, 7), (4, 3, 3, 3), (4,)]),
    (from_scratch.Affine.apply, lambda x, w, b: F.linear(x, w.T, b), [(5, 4), (4, 3), (3,)]),
    (from_scratch.Rectifier.apply, F.relu, [(3, 9)]),
    (lambda x: from_scratch.SoftmaxCrossEntropy.apply(x, torch.eye(4, dtype=x.dtype)),
     lambda x: F.cross_entropy(x, torch.eye(4, dtype=x.dtype)), [(4, 4)]),
    *((lambda x, passes=passes: passes.apply(x, 2), lambda x: F.max_pool2d(x, 2), [(2, 3, 6, 8)])
      for passes in POOLINGS),
])  # fmt: skip
def test_a_pass_has_torchs_values_and_gradients(ours: Any, torchs: Any, shapes: list[tuple[int, ...]]) -> None:
    inputs = [torch.randn(*shape, dtype=torch.float64) for shape in shapes]
    (out, found), (expected, wanted) = gradients(ours, *inputs), gradients(torchs, *inputs)
    torch.testing.assert_close(out, expected, rtol=1e-5, atol=1e-5)  # a logarithm is kept from 0 by 1e-7
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.fixture
def accounts_gpu(handmade_profile: Profile) -> Profile:
    """The accelerator made by hand, on which an index assignment costs as much per position as in the account."""
    names = fitted_features("indexing")
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
    return placer.explain(build(), batch=one_hot_digits(8), loss=own_loss, optimizer="sgd", profile=profile)


def test_the_index_assignment_of_the_pooling_layer_is_named_and_with_a_mask_it_is_gone(accounts_gpu: Profile) -> None:
    found, mask = (explained(build, accounts_gpu) for build in (from_scratch.by_index, from_scratch.by_mask))
    (worst,) = [row for row in found.bottlenecks if (row.device, row.phase) == ("cuda", "backward")]
    assert (worst.layer, worst.op) == ("model.pool", "aten::index_put_")
    assert worst.seconds / worst.phase_seconds > 0.9
    assert worst.seconds == pytest.approx(SECONDS, rel=0.1)
    assert "aten::index_put_ in model.pool takes" in found.to_text(full=True)
    assert not any("index_put" in row.op for row in mask.ops)
