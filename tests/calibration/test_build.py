"""A profile is built from a journal: at one speed of the machine, with its noise told."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import placer
from placer import profile
from placer.calibration.build import at_one_speed, noise_warnings
from placer.calibration.measuring.journal import StepObservation


def test_a_contended_machine_is_told_in_one_line() -> None:
    assert noise_warnings(0.05) == noise_warnings(0.05, 0.2) == ()
    (line,) = noise_warnings(0.2, 0.34)
    assert line == (
        "noisy: repeated steps spread by 20% (above 12%) and 34% of the steps (above 25%) ran at another speed and are "
        "left out; for sharper intervals stop other programs and run placer calibrate again"
    )
    (speed_alone,) = noise_warnings(0.05, 0.34)
    assert "spread" not in speed_alone
    assert noise_warnings(0.4)[0].startswith("very noisy: repeated steps spread by 40% (above 30%); predictions are")


def test_the_first_speed_that_lasted_is_learnt_from() -> None:
    def taken(reading: float, count: int) -> list[StepObservation]:
        return [StepObservation("cpu", 1, "matmul", str(n), 1e-3, 0.0, {}, (), reading=reading) for n in range(count)]

    quiet, contended = taken(1e-4, 20) + taken(1.05e-4, 10), taken(1.7e-4, 40)
    assert at_one_speed(quiet + contended, [1.02e-4, 1.7e-4]) == (quiet, 1.02e-4)
    assert at_one_speed(quiet + contended, [1.7e-4]) == (contended, 1.7e-4)
    assert at_one_speed(quiet[:7] + contended, [1.02e-4, 1.7e-4]) == (contended, 1.7e-4)  # a moment is too short
    assert at_one_speed(taken(0.0, 9), []) == (taken(0.0, 9), 0.0)  # without a probe
    never_twice_alike = [step for n in range(40) for step in taken(1e-4 * 1.3**n, 1)]
    kept, reading = at_one_speed(never_twice_alike, [1e-4])
    assert kept == never_twice_alike
    assert reading == pytest.approx(1e-4 * 1.3**19.5, rel=0.02)


@pytest.mark.parametrize("spread", [0.13, 0.31])
def test_noise_is_kept_in_the_profile_and_shown_by_explain(spread: float, handmade_profile: profile.Profile) -> None:
    (warning,) = noise_warnings(spread)
    profile.save(replace(handmade_profile, warnings=(warning,)))
    shown = placer.explain(torch.nn.Linear(2, 2), (1, 2), devices=["cpu"]).to_text(width=1000)
    assert f"- {warning}" in shown.splitlines()
