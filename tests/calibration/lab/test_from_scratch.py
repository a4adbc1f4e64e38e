"""Networks from scratch: their passes against torch's own, and where their backward pass goes, told before it runs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest

import placer
from placer.calibration.lab.suite import from_scratch
from placer.calibration.lab.suite.datasets import one_hot_digits
from placer.calibration.suite.entry import Supervised, own_loss
from placer.explanation import Explanation
from placer.pricing import CostModel, describe_step, on_accelerator, op_label
from placer.profile.profile import FamilyFit, Profile
from placer.tracing import trace
from placer.workload import make_workload

#: What the account reported for the index assignment, of 8 images.
SECONDS = 9.5e-3


@pytest.fixture
def accounts_gpu(handmade_profile: Profile) -> Profile:
    """The accelerator made by hand, on which the index assignment takes as long as in the account."""
    cpu, cuda = handmade_profile.fits
    workload = make_workload(from_scratch.by_index(), one_hot_digits(8), loss=own_loss, optimizer="sgd")
    (assigned,) = [work for work in describe_step(trace(workload)) if work.op.startswith("aten::index_put")]
    ((by_rates,), _, _) = CostModel(cuda).price_works([assigned])
    offsets = {op_label(on_accelerator(assigned)): math.log(SECONDS / by_rates)}
    indexing = FamilyFit((), offsets, sigma=0.1, measured=1)
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
