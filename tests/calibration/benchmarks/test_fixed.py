"""The fixed networks: each runs, differs from all others, and together they have all that costs a host time."""

from __future__ import annotations

import pytest
import torch

from placer.calibration.benchmarks.fixed import PACE, probes
from placer.calibration.fitting.accelerator import LEAST_SHOWING, issued_seconds
from placer.calibration.measuring.bench import Bench
from placer.calibration.measuring.journal import StepObservation
from placer.pricing.framework import HOST_WORK, framework_seconds, host_framework

#: What none of them has: no network of a few layers is fused to one op of an encoder's.
ELSEWHERE = {"encoder"}


@pytest.fixture(scope="module")
def measured() -> list[StepObservation]:
    bench = Bench("cpu", torch.get_num_threads())
    return [bench.measure_whole(probe) for probe in probes()]


def test_each_has_a_name_and_takes_time(measured: list[StepObservation]) -> None:
    assert len({step.name for step in measured}) == len(measured) > 2 * LEAST_SHOWING
    assert all(step.family == PACE and step.seconds > 0.0 and step.is_finite() for step in measured)
    assert all(op.seconds is None for step in measured for op in step.ops)  # no op was timed


def test_together_they_have_all_that_a_host_does(measured: list[StepObservation]) -> None:
    for name in set(HOST_WORK) - ELSEWHERE:
        alone = host_framework({other: float(other == name) for other in HOST_WORK})
        times = sum(issued_seconds(step, alone) + framework_seconds(step.counts, alone) for step in measured)
        assert times > 0.0, name
