"""Costs of the framework's own work: phases timed apart tell them apart, and which are fitted at all."""

from __future__ import annotations

from placer.calibration.fitting.device import fit_device

from .made_up import RATES, in_phases


def test_phases_timed_apart_tell_costs_apart_that_grow_together() -> None:
    costs = {"step": 2e-6, "python_call": 1e-6, "training_step": 2e-5, "autograd_node": 3e-6}

    def worst(apart: bool) -> float:
        found = fit_device(in_phases(80, costs, apart=apart), RATES, device="cpu", threads=2).framework
        return max(abs(found[name] / costs[name] - 1.0) for name in ("python_call", "autograd_node"))

    assert worst(apart=True) < 0.1
    assert worst(apart=False) > 0.2
