"""The host's time to issue ops and updates, and the kernels they run in."""

from __future__ import annotations

from dataclasses import replace

import pytest

from placer.calibration.fitting.accelerator import LEAST_UPDATES, issue_seconds, kernel_counts
from placer.calibration.measuring.journal import OpObservation, StepObservation
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
    assert "host" not in found


def test_an_optimizer_of_few_probes_is_known_by_the_ops_of_its_update() -> None:
    """In torch 2.6 to 2.13 an update of SGD is one op over all tensors, one of Adam seven."""
    sgd = [updated("optimizer::SGD", tensors, 1e-5, 1e-7) for tensors in (1, 4, 9, 60)]
    found = issue_seconds(sgd)
    assert found["host_update/optimizer::Adam"] == pytest.approx(7e-5)
    assert found["host/optimizer::Adam"] == pytest.approx(7e-7)


def test_a_fused_update_says_nothing_of_a_usual_one() -> None:
    fused = feature_names("optimizer").index("fused")
    usual = [updated("optimizer::Adam", tensors, 9e-5, 2e-6) for tensors in (1, 4, 9, 60)]
    one_kernel = []
    for step in [updated("optimizer::Adam", tensors, 1e-5, 1e-7) for tensors in (1, 4, 9, 60)]:
        (op,) = step.ops
        features = tuple(1.0 if i == 2 + fused else 0.0 for i in range(len(op.features)))
        one_kernel.append(replace(step, ops=(replace(op, features=features),)))
    found = issue_seconds([*usual, *one_kernel])
    assert found["host_update/optimizer::Adam"] == pytest.approx(9e-5)
    assert found["host_update/optimizer::Adam.fused"] == pytest.approx(1e-5)


def test_a_network_says_nothing_of_its_update_whose_tensors_differ() -> None:
    network = replace(updated("optimizer::Adam", 5, 9e-5, 2e-6), family="network")
    assert issue_seconds([network]) == {}


def ran(op: str, host: float, device: float, step: float, kernels: float = 1.0) -> StepObservation:
    """A step of one op."""
    features = (0.0,) * (2 + len(feature_names("indexing")))
    one = OpObservation("indexing", op, "float32", features, device, host, 0.0, 1, kernels)
    return StepObservation("made-up", 2, "indexing", op, step, 0.0, {}, (one,))


def test_a_wait_inside_an_op_is_no_issue() -> None:
    """Pricing adds the wait; what issuing such an op takes is what its family's do."""
    gathers = [ran("aten::gather", 5e-6, 1e-6, 1e-4)] * 3
    reads = [ran(op, 9e-4, 1e-6, 1e-3) for op in ("aten::nonzero", "aten::masked_select", "aten::index.mask")]
    assert issue_seconds([*gathers, *reads]) == issue_seconds(gathers)


def test_steps_that_wait_for_the_host_tell_what_issuing_takes() -> None:
    """Under the device's shadow, what recording adds does not show and is taken off all the same."""
    hidden = [ran("aten::gather", 1e-6, 9e-5, 1e-4), ran("aten::take", 2e-6, 9e-5, 1e-4)] * 3
    shown = [ran("aten::gather", 5e-6, 1e-6, 1e-4)]
    found = issue_seconds([*hidden, *shown])
    assert found["host/aten::gather"] == found["host"] == 5e-6
    assert found["host/aten::take"] == 2e-6  # seen in no other steps


def test_kernels_are_counted_where_they_were_recorded() -> None:
    steps = [ran("aten::gather", 5e-6, 1e-6, 1e-4, kernels) for kernels in (2.0, 0.0, 2.0, 3.0)]
    assert kernel_counts([*steps, ran("aten::take", 5e-6, 1e-6, 1e-4, 0.0)]) == {"kernels/aten::gather": 2.0}
