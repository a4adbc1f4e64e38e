"""An unnamed cloud CPU: more vCPUs share work out, and what is not known of them widens the interval."""

from __future__ import annotations

import math
from typing import Any

import pytest
from torch import nn

from placer.fleets import cpu_called, cpu_class
from placer.pricing import Prediction, Residence, gpu_profile, predict
from placer.tracing import trace
from placer.workload import make_workload

LARGE = nn.Sequential(nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 1024))
HERE = Residence(here=False)


def on(vcpus: float) -> Prediction:
    profile = cpu_class(vcpus)
    return predict(
        trace(make_workload(LARGE, (512, 1024), mode="train")),
        profile,
        devices=("cpu",),
        threads=profile.fit("cpu").threads,
        residence=HERE,
    )["cpu"]


def test_work_that_cores_share_is_faster_on_more_of_them() -> None:
    steps = [on(vcpus).step_seconds for vcpus in (2, 3, 4, 8, 16, 32)]
    assert steps == sorted(steps, reverse=True)
    assert 1.5 < steps[2] / steps[3] < 2.1  # twice the cores, each with caches of its own


def test_a_share_of_a_core_is_that_much_slower() -> None:
    half, one, two = on(0.5), on(1), on(2)
    assert one.step_seconds == pytest.approx(two.step_seconds)  # both have one core
    assert 1.5 < half.step_seconds / one.step_seconds < 2.5


def test_it_is_an_estimate_whose_interval_is_wider_than_a_named_cpus() -> None:
    unnamed = on(4)
    step = trace(make_workload(LARGE, (512, 1024), mode="train"))
    named = predict(step, cpu_called("c6i", 4), devices=("cpu",), threads=2, residence=HERE)["cpu"]
    assert unnamed.provenance == "published"
    assert cpu_class(4).estimated
    assert unnamed.step_seconds == pytest.approx(named.step_seconds)  # Ice Lake stands for all
    assert 1.6 < unnamed.high / unnamed.step_seconds < 2.2
    assert unnamed.high / unnamed.step_seconds > 1.05 * named.high / named.step_seconds
    assert "which CPU it is is not known" in cpu_class(4).warnings[0]


def test_it_is_the_host_of_a_gpu() -> None:
    profile = gpu_profile("T4", cpu_class(4))
    step = trace(make_workload(LARGE, (512, 1024), mode="train"))
    found = predict(step, profile, devices=("cuda",), threads=1, residence=HERE)["cuda"]
    assert found.step_seconds < on(4).step_seconds
    assert profile.fits[0].reference == "a cloud CPU with 4 vCPUs"


@pytest.mark.parametrize("vcpus", [0, -2, math.nan, math.inf, "8", True])
def test_what_is_no_number_above_zero_is_refused(vcpus: Any) -> None:
    with pytest.raises((ValueError, TypeError), match="vcpus must be a number above 0"):
        cpu_class(vcpus)
