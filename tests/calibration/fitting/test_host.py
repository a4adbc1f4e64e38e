"""The host's time to issue the updates of an optimizer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from placer.calibration.fitting.host import LEAST_UPDATES, issue_seconds
from placer.calibration.measuring.observation import OpObservation, StepObservation
from placer.pricing.describe import feature_names


def updated(optimizer: str, tensors: int, whole: float, each: float) -> StepObservation:
    """A probe of equal tensors, whose update is divided evenly among them."""
    features = (0.0,) * (2 + len(feature_names("optimizer")))
    op = OpObservation("optimizer", optimizer, "float32", features, 1e-6, whole / tensors + each, 0.0, tensors)
    return StepObservation("made-up", 2, "optimizer", f"{tensors}", 1e-3, 0.0, {}, (op,))


def test_an_update_takes_the_host_a_time_of_its_own_and_one_per_tensor() -> None:
    adam = [updated("optimizer::Adam", tensors, 9e-5, 2e-6) for tensors in (1, 4, 9, 60)]
    sgd = [updated("optimizer::SGD", tensors, 3e-5, 1e-6) for tensors in (2, 30)]
    assert len(adam) >= LEAST_UPDATES > len(sgd)
    found = issue_seconds([*adam, *sgd])
    assert found["host_update/optimizer::Adam"] == pytest.approx(9e-5)
    assert found["host/optimizer::Adam"] == pytest.approx(2e-6)
    assert 3e-5 < found["host_update/optimizer"] < 9e-5
    assert not {"host", "host/optimizer::SGD", "host_update/optimizer::SGD"} & set(found)


def test_a_network_says_nothing_of_its_update_whose_tensors_differ() -> None:
    network = replace(updated("optimizer::Adam", 5, 9e-5, 2e-6), family="network")
    assert issue_seconds([network]) == {}
