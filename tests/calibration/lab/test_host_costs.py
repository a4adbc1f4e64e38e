"""The costs of a host, from whole steps of several machines."""

from __future__ import annotations

import numpy as np
import pytest

from placer.calibration.lab.validators.host_costs import Step, amounts, fitted
from placer.pricing.framework import HOST_WORK

COSTS = np.linspace(1e-6, 2e-5, len(HOST_WORK))


def steps(pace: float, seed: int, disturbed: float) -> list[Step]:
    """Steps of a host that takes ``pace`` times ``COSTS``; a share of them takes three times as long."""
    random = np.random.default_rng(seed)
    found = []
    for _ in range(150):
        counts = random.integers(0, 30, len(HOST_WORK)).astype(float)
        seconds = pace * float(counts @ COSTS) * (3.0 if random.random() < disturbed else 1.0)
        found.append(Step("n", counts, seconds, 0.0, 1.0 / seconds))
    return found


@pytest.mark.parametrize("disturbed", [0.0, 0.1])
def test_costs_and_paces_are_found_apart_and_disturbed_steps_move_neither(disturbed: float) -> None:
    costs, paces = fitted([steps(0.8, 1, disturbed), steps(1.25, 2, disturbed)])
    assert paces == pytest.approx([0.8, 1.25], rel=0.03)
    assert costs == pytest.approx(COSTS, rel=0.25, abs=1e-6)
    assert (costs >= 0.0).all()


def test_a_count_is_what_a_step_costs_where_one_thing_costs_a_second() -> None:
    counts = {"python_call": 7.0, "autograd_node": 3.0, "forward_op": 5.0}
    found = dict(zip(HOST_WORK, amounts([], counts), strict=True))
    assert {name: count for name, count in found.items() if count} == {"python_call": 7.0, "autograd_node": 3.0}


def test_a_step_is_its_hosts_where_its_device_waits() -> None:
    assert Step("n", COSTS, 1e-3, 0.5e-3, 1.0).is_of_host
    assert not Step("n", COSTS, 1e-3, 0.7e-3, 1.0).is_of_host
