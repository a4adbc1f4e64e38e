"""The fixed networks: each runs, differs from all others, and together they have all that costs a host time."""

from __future__ import annotations

import torch

from placer.calibration.benchmarks.fixed import probes
from placer.calibration.fitting.accelerator import LEAST_SHOWING, issued_seconds
from placer.calibration.measuring.bench import Bench
from placer.pricing.framework import HOST_WORK, framework_seconds, host_framework

#: What none of them has: no network of a few layers is fused to one op of an encoder's.
ELSEWHERE = {"encoder"}


def test_together_they_have_all_that_a_host_does() -> None:
    bench = Bench("cpu", torch.get_num_threads())
    measured = [bench.measure_whole(probe) for probe in probes()]
    assert len({step.name for step in measured}) == len(measured) > 2 * LEAST_SHOWING
    for name in set(HOST_WORK) - ELSEWHERE:
        alone = host_framework({other: float(other == name) for other in HOST_WORK})
        times = sum(issued_seconds(step, alone) + framework_seconds(step.counts, alone) for step in measured)
        assert times > 0.0, name
