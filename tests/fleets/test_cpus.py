"""An unnamed cloud CPU: more vCPUs share work out, and what is not known of them widens the interval."""

from __future__ import annotations

import math
from typing import Any

import pytest
from torch import nn

from placer.fleets import cpu_called, cpu_class
from placer.pricing import Prediction, Residence, predict
from placer.profile import Profile
from placer.tracing import trace
from placer.workload import make_workload

LARGE = nn.Sequential(nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 1024))
ELSEWHERE = Residence(here=False)


STEP = trace(make_workload(LARGE, (512, 1024), mode="train"))


def on(vcpus: float, profile: Profile | None = None) -> Prediction:
    profile = profile or cpu_class(vcpus)
    return predict(STEP, profile, devices=("cpu",), threads=profile.fit("cpu").threads, residence=ELSEWHERE)["cpu"]


def test_work_that_cores_share_is_faster_on_more_of_them() -> None:
    steps = [on(vcpus).step_seconds for vcpus in (0.5, 1, 2, 3, 4, 8, 16, 32)]
    assert steps == sorted(steps, reverse=True)
    assert steps[1] == pytest.approx(steps[2])  # both have one core
    assert 1.5 < steps[0] / steps[1] < 2.5  # half a core
    assert 1.5 < steps[4] / steps[5] < 2.1  # twice the cores, each with caches of its own


def test_it_is_an_estimate_whose_interval_is_wider_than_a_named_cpus() -> None:
    unnamed, named = on(4), on(4, cpu_called("c6i", 4))
    assert (unnamed.provenance, cpu_class(4).estimated) == ("published", True)
    assert unnamed.step_seconds == pytest.approx(named.step_seconds)  # Ice Lake stands for all
    assert 1.6 < unnamed.high / unnamed.step_seconds < 2.2
    assert unnamed.high / unnamed.step_seconds > 1.05 * named.high / named.step_seconds
    assert "which CPU it is is not known" in cpu_class(4).warnings[0]


@pytest.mark.parametrize("vcpus", [0, math.nan, math.inf, "8", True])
def test_what_is_no_number_above_zero_is_refused(vcpus: Any) -> None:
    with pytest.raises((ValueError, TypeError), match="vcpus must be a number above 0"):
        cpu_class(vcpus)
