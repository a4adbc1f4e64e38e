"""The ops of a calibration's steps: what is fitted to, and what a profile keeps."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from priced import elementwise

from placer.calibration.fitting.samples import ops_by_family, samples
from placer.calibration.measuring.journal import OpObservation, StepObservation


def added(numel: float, op: str = "aten::add") -> OpObservation:
    work = elementwise(op, numel, 12 * numel)
    return OpObservation(work.family, work.op, work.dtype, work.features, 1e-6 * numel, 2e-6, 0.0, 1)


def step(*ops: OpObservation, device: str = "cpu", family: str = "network") -> StepObservation:
    return StepObservation(device, 2, family, "made up", 1e-3, 0.03, {}, ops)


def test_a_profile_keeps_so_many_of_each_family_at_the_most_and_all_of_their_corners() -> None:
    ops = [added(numel) for numel in np.geomspace(64, 1 << 20, 200)]
    rare = added(1e3, "aten::rare")
    kept = samples([step(*ops[i : i + 10]) for i in range(0, 200, 10)] + [step(rare)], most=16)
    assert Counter(sample.family for sample in kept) == {"elementwise": 16}
    features = [sample.features for sample in kept]
    assert ops[0].features in features
    assert ops[-1].features in features
    assert rare.features in [sample.features for sample in kept if sample.op == "aten::rare"]
    for sample in kept:
        assert (sample.device, sample.threads, sample.host_seconds, sample.count) == ("cpu", 2, 0.0, 1)
        assert sample.seconds == pytest.approx(1e-6 * sample.features[0])


def test_ops_are_fitted_by_family_and_updates_by_their_own_probes_alone() -> None:
    update = replace(added(1e3), family="optimizer")
    untimed = replace(added(1e3), seconds=None)
    found = ops_by_family([step(added(1e3), untimed, update), step(update, family="optimizer")])
    assert {name: len(ops) for name, ops in found.items()} == {"elementwise": 1, "optimizer": 1}
    assert found["elementwise"][0].spread == 0.03
