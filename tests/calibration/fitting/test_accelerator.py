"""A made-up accelerator whose steps wait for the host: what the host does is found, with few steps by the CPU's fit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from placer.calibration.fitting.accelerator import LEAST_UPDATES, fit_accelerator, issue_seconds
from placer.calibration.measuring.observation import OpObservation, StepObservation
from placer.pricing.describe import feature_names
from placer.pricing.framework import framework_seconds

from .test_device import RATES, steps

ISSUE, PACE = 3e-6, 1.5
DEVICE_RATES = {**RATES, "launch_seconds": 4e-6, "sync_seconds": 6e-6, "issue_seconds": 2e-6}
#: What a CPU's fit has found, which holds for the host of an accelerator but for its pace.
ON_CPU = {"step": 2e-5, "forward_op": 4e-6, "python_call": 3e-6, "training_step": 5e-5}


def host_bound(count: int, seed: int) -> list[StepObservation]:
    """Steps whose kernels take next to nothing, by a host that is ``PACE`` times as slow as on the CPU."""
    random = np.random.default_rng(seed)
    found = []
    for step in steps(count, seed):
        ops = tuple(replace(op, seconds=1e-7, host_seconds=ISSUE) for op in step.ops)
        own = PACE * framework_seconds(step.counts, ON_CPU)
        seconds = sum(ISSUE * op.count for op in ops) + own
        seconds += DEVICE_RATES["launch_seconds"] + DEVICE_RATES["sync_seconds"]
        seconds *= float(np.exp(random.normal(0, 0.02)))
        found.append(replace(step, device="made-up", ops=ops, seconds=seconds))
    return found


def between_ops(count: int, host: dict[str, float] | None) -> dict[str, float]:
    fit = fit_accelerator(host_bound(count, 5), DEVICE_RATES, device="made-up", threads=2, host=host)
    return {name: cost for name, cost in fit.framework.items() if not name.startswith("host")}


def test_many_steps_tell_what_the_host_does_between_ops() -> None:
    found = between_ops(200, None)
    seen = ("step", "forward_op", "python_call")
    assert found == {name: pytest.approx(PACE * ON_CPU[name], rel=0.15) for name in seen}


def test_few_steps_tell_at_what_pace_it_does_what_it_does_on_the_cpu() -> None:
    found = between_ops(16, {**ON_CPU, "python_call": 1.2 * ON_CPU["python_call"]})
    unseen = host_bound(50, 6)
    ratios = [framework_seconds(s.counts, found) / (PACE * framework_seconds(s.counts, ON_CPU)) for s in unseen]
    assert max(ratios) < 1.1
    assert min(ratios) > 0.9
    assert found["training_step"] == pytest.approx(PACE * ON_CPU["training_step"], rel=0.15)  # none was measured


def test_too_few_steps_tell_nothing_by_themselves() -> None:
    assert between_ops(5, None) == {}


def test_a_host_whose_clock_stands_still_between_ops_is_not_given_a_cpus_costs() -> None:
    assert max(between_ops(200, {name: 1e3 * cost for name, cost in ON_CPU.items()}).values()) < 1e-4


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
