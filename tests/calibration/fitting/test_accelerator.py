"""A made-up accelerator whose steps wait for the host: what the host does is found, with few steps by the CPU's fit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from placer.calibration.fitting.accelerator import fit_accelerator
from placer.calibration.measuring.journal import StepObservation
from placer.pricing.framework import framework_seconds

from .made_up import RATES, steps

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


def test_many_steps_show_what_the_host_does_between_ops() -> None:
    found = between_ops(200, None)
    seen = ("step", "forward_op", "python_call")
    assert found == {name: pytest.approx(PACE * ON_CPU[name], rel=0.15) for name in seen}


def test_few_steps_show_at_what_pace_it_does_what_it_does_on_the_cpu() -> None:
    found = between_ops(16, {**ON_CPU, "python_call": 1.2 * ON_CPU["python_call"]})
    unseen = host_bound(50, 6)
    ratios = [framework_seconds(s.counts, found) / (PACE * framework_seconds(s.counts, ON_CPU)) for s in unseen]
    assert max(ratios) < 1.1
    assert min(ratios) > 0.9
    assert found["training_step"] == pytest.approx(PACE * ON_CPU["training_step"], rel=0.15)  # none was measured


def test_too_few_steps_show_nothing_by_themselves() -> None:
    assert between_ops(5, None) == {}


def test_a_host_whose_clock_stands_still_between_ops_is_not_given_a_cpus_costs() -> None:
    assert max(between_ops(200, {name: 1e3 * cost for name, cost in ON_CPU.items()}).values()) < 1e-4
