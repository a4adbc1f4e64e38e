"""The interval of a machine that learns from another one of its class."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from placer.calibration.fitting.device import fit_device
from placer.calibration.fitting.transfer import Expectation
from placer.calibration.measuring.journal import StepObservation
from placer.profile.profile import DeviceFit

from .made_up import RATES, steps


def interval_taught_by(known: DeviceFit, observed: list[StepObservation], spread: float) -> dict[str, float]:
    random = np.random.default_rng(4)
    here = [replace(step, seconds=step.seconds * math.exp(random.normal(0, spread))) for step in observed]
    taught = fit_device(here, RATES, device="cpu", threads=2, expected=Expectation(known, same_class=True))
    return dict(taught.interval)


def test_the_interval_of_the_same_class_is_kept_and_moves_with_what_is_seen_here(reference: DeviceFit) -> None:
    known = replace(reference, interval={"base": 0.1, "ops": 0.5, "held_out": 0.2})
    little, much = (interval_taught_by(known, steps(n, 7), 0.3) for n in (20, 300))
    steady = interval_taught_by(known, steps(300, 7), 0.0)
    assert steady["base"] < 0.1 < little["base"] < much["base"]
    assert much["base"] > 0.2
    # One network that is far off does not make all of them as uncertain.
    assert little["held_out"] == pytest.approx(2.0 * little["base"])


def test_without_a_network_the_interval_of_the_same_class_stays(reference: DeviceFit) -> None:
    blocks = [replace(step, family="matmul") for step in steps(40, 7)]
    assert interval_taught_by(reference, blocks, 0.0) == reference.interval
