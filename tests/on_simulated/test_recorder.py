"""What the recorder shows of a device's kernels, and of those that it loses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
import torch
from simulated.device import SimulatedDevice
from simulated.spec import SPEC

from placer.calibration.measuring import recording
from placer.calibration.measuring.recording import Recorded, try_recorder

Assemble = Callable[..., Sequence[SimulatedDevice]]


def session(work: Callable[[], object]) -> list[Recorded]:
    """The steps that one session of the recorder shows."""

    def timed() -> float:
        work()
        return 1.0

    return recording.record(timed, 2, accelerated=True)


def test_the_recorder_shows_the_kernels_of_a_device_that_it_knows(assemble: Assemble, recorder_shows_sim: None) -> None:
    assemble(replace(SPEC, profiled=True, kernels={"mm": 3}))
    a = torch.ones(64, 64, device="sim", requires_grad=True)

    def step() -> None:
        (a @ a).sum().backward()

    step()
    run = session(step)[-1]
    product = next(event for event in run.events if event.name == "aten::mm")
    assert product.kernels == 3
    assert product.device_seconds == pytest.approx(3 * SPEC.kernel + 2 * 64**3 / SPEC.flops, rel=1e-3)
    backward = next(event for event in run.events if event.name == "MmBackward0")
    assert backward.kernels == 6
    assert try_recorder("sim").sees


def test_kernels_given_away_at_the_head_of_a_session_are_those_that_are_lost(
    assemble: Assemble, recorder_shows_sim: None
) -> None:
    assemble(replace(SPEC, profiled=True, loses_kernels=True))
    x = torch.ones(8, device="sim")
    x.neg_()
    for _ in range(2 * recording.GIVEN_AWAY):
        for run in session(x.neg_):
            negation = next(event for event in run.events if event.name == "aten::neg_")
            assert negation.kernels == 1
