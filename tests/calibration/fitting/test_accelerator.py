"""A made-up accelerator: what its host does, what its samples are, and what is known of it already."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from placer.calibration.fitting.accelerator import (
    PUT_DOWN_TO_MOMENT,
    contradictions,
    fit_accelerator,
)
from placer.calibration.measuring.journal import StepObservation
from placer.errors import ProfileError
from placer.pricing import CostModel, device_model
from placer.pricing.framework import framework_seconds, host_framework, host_seconds
from placer.profile import Device

from .made_up import RATES, steps

DEVICE_RATES = {**RATES, "launch_seconds": 4e-6, "sync_seconds": 6e-6, "issue_seconds": 2e-6}
HOST = host_framework()


def host_bound(count: int, seed: int, pace: float, family: str = "network") -> list[StepObservation]:
    """Steps whose kernels take next to nothing, by a host that takes ``pace`` times the costs that come with placer."""
    random = np.random.default_rng(seed)
    found = []
    for step in steps(count, seed):
        ops = tuple(replace(op, seconds=1e-7) for op in step.ops)
        host = sum(host_seconds(op.work(), HOST) * op.count for op in ops) + framework_seconds(step.counts, HOST)
        seconds = pace * host * float(np.exp(random.normal(0, 0.02)))
        seconds += DEVICE_RATES["launch_seconds"] + DEVICE_RATES["sync_seconds"]
        found.append(replace(step, device="made-up", family=family, ops=ops, seconds=seconds))
    return found


def fitted(observed: list[StepObservation]) -> Device:
    return fit_accelerator(observed, DEVICE_RATES, device="made-up", threads=2)


@pytest.mark.parametrize("pace", [0.4, 2.0])
def test_steps_that_wait_for_the_host_tell_its_pace_but_for_what_is_the_moments(pace: float) -> None:
    found = fitted(host_bound(60, 5, pace)).framework
    told = math.exp(math.copysign(abs(math.log(pace)) - PUT_DOWN_TO_MOMENT, math.log(pace)))
    for name in ("step", "host/matmul", "host/elementwise", "host_update/optimizer", "host"):
        assert found[name] == pytest.approx(told * HOST[name], rel=0.05)


def on_t4(factor: float) -> list[StepObservation]:
    """Steps whose ops take ``factor`` times what is known of a T4, a thousand times as large as the made-up ones."""
    found = []
    for step in steps(60, 3):
        large = [replace(op, features=tuple(1000.0 * f for f in op.features)) for op in step.ops]
        seconds, _, _ = device_model("T4").price([op.work() for op in large])
        ops = tuple(replace(op, seconds=factor * t) for op, t in zip(large, seconds, strict=True))
        found.append(replace(step, device="cuda", ops=ops))
    return found


@pytest.mark.parametrize(("factor", "said"), [(1.0, 0), (1.8, 0), (0.6, 0), (3.0, 2), (0.3, 2)])
def test_large_ops_that_contradict_it_are_told(factor: float, said: int) -> None:
    found = contradictions(on_t4(factor), "cuda", "Tesla T4")
    assert len(found) == said
    for text, words in zip(found, ("products", "elementwise operations"), strict=False):
        assert text.startswith(f"cuda: large {words} take {factor:.2g} times what is known of Tesla T4: ")


def test_a_gpu_that_differs_from_what_is_published_is_priced_as_it_was_measured() -> None:
    slow = on_t4(1.4)
    fit = fit_accelerator(slow[:30], RATES, device="cuda", threads=2, gpu="Tesla T4")
    assert fit.gpu == "Tesla T4"
    unseen = [op for step in slow[30:] for op in step.ops]
    found, _, _ = CostModel(fit).price_works([op.work() for op in unseen])
    assert np.median(np.abs(np.log(np.array(found) / [op.seconds for op in unseen]))) < 0.03
    with pytest.raises(ProfileError, match=r"other knowledge of Tesla T4 .*; run: placer calibrate"):
        CostModel(replace(fit, edition=fit.edition + 1))
