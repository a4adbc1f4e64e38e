"""A profile is built from a journal, with what is to be told of the machine."""

from __future__ import annotations

import math
from dataclasses import replace

import torch

import placer
from placer import profile
from placer.calibration.build import TENTHS, noise_warnings
from placer.pricing.timeline import LONG_STEPS


def test_a_machine_whose_speed_varies_is_told_in_one_line_that_explain_shows(handmade_profile: profile.Profile) -> None:
    cpu = handmade_profile.fit("cpu")
    assert noise_warnings([cpu]) == ()
    restless = replace(cpu, interval={**cpu.interval, "moment": math.log(1.6) / TENTHS})
    (warning,) = noise_warnings([cpu, restless])
    assert warning == "this machine is shared: its speed varies by 1.6x, and intervals are as wide"
    beside = replace(restless, rates={**cpu.rates, LONG_STEPS: 2.1})
    assert noise_warnings([beside]) == (f"{warning}; beside other programs steps of 2 ms and more take 2.1x",)
    profile.save(replace(handmade_profile, warnings=(warning,)))
    shown = placer.explain(torch.nn.Linear(2, 2), (1, 2), devices=["cpu"]).to_text(width=1000, full=True)
    assert f"- {warning}" in shown.splitlines()
