"""What is observed of a timed step: ops, and phases without their ops."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from placer.calibration.measuring.journal import StepObservation
from placer.calibration.measuring.step_timing import LEAST_OWN, OpTiming, Phases, RecorderCost, StepTiming, observe
from placer.tracing.trace_data import OpCall, Phase, TensorSpec, Trace

SPEC = TensorSpec((1024,), (1,), "float32")


def op(name: str, phase: Phase = "forward") -> OpCall:
    return OpCall(f"aten::{name}", (SPEC,), (SPEC,), phase=phase)


def seen(*timed: tuple[OpCall, float | None], phases: Phases | None = None, **more: Any) -> StepObservation:
    """A step of 1 second, of ops and their seconds; None where no event was found."""
    calls = tuple(call for call, _ in timed)
    ops = tuple(OpTiming(call, seconds, 0, 0.0) for call, seconds in timed if seconds is not None)
    total = sum(seconds or 0.0 for _, seconds in timed)
    timing = StepTiming(1.0, 0.0, 1.0, 0, ops, 1.0, phases=phases)
    assert total <= 1.0
    return observe(Trace(calls, "train", (), (), (), ()), timing, device="cpu", threads=1, family="network", name="x",
                   recorder=RecorderCost(0.0, 0.0), **more)  # fmt: skip


def test_gaps_are_phases_without_their_ops() -> None:
    step = seen(
        (op("exp"), 0.1), (op("sum", "loss"), 0.1), (op("mul", "backward"), 0.2), phases=Phases(0.3, 0.5, 0.2)
    )
    assert step.gaps == pytest.approx({"forward": 0.1, "backward": 0.3, "update": 0.2})


def test_a_phase_with_a_missing_op_has_no_gap() -> None:
    phases = Phases(0.3, 0.5, 0.2)
    forward, backward = op("exp"), op("mul", "backward")
    assert set(seen((forward, None), (backward, 0.1), phases=phases).gaps) == {"backward", "update"}
    assert set(seen((forward, 0.1), (op("sum", "loss"), None), phases=phases).gaps) == {"backward", "update"}
    assert set(seen((forward, 0.1), (backward, None), phases=phases).gaps) == {"forward", "update"}
    assert not seen((forward, 0.1)).gaps


def launched(host: float, device: float, kernels: int) -> Any:
    """A timed op of one call; ``seconds`` on the host and on the device."""
    call = op("exp")
    return SimpleNamespace(
        call=call, host_seconds=host, inside=0, device_seconds=device, kernels=kernels, corrected=lambda recorder: host
    )


def on_gpu(seconds: float, timed: Any, per_launch: float) -> StepObservation:
    timing = StepTiming(seconds, 0.0, seconds, 1, (timed,), 1.0)
    return observe(Trace((timed.call,), "infer", (), (), (), ()), timing, device="cuda", threads=1, family="network",
                   name="x", recorder=RecorderCost(0.0, 0.0), per_launch=per_launch)  # fmt: skip


def test_what_an_attached_recorder_adds_to_launches_is_no_part_of_an_op_or_of_a_step() -> None:
    """The user's process launches without it. A step whose kernels take longer does not get shorter by it."""
    bound_by_host = on_gpu(100e-6, launched(80e-6, 20e-6, 10), 1e-6)
    assert bound_by_host.ops[0].host_seconds == pytest.approx(70e-6)
    assert bound_by_host.seconds == pytest.approx(90e-6)
    bound_by_device = on_gpu(100e-6, launched(80e-6, 98e-6, 10), 1e-6)
    assert bound_by_device.seconds == pytest.approx(100e-6)
    assert on_gpu(100e-6, launched(80e-6, 20e-6, 10), 0.0).seconds == 100e-6
    # However wrong the difference is, a part of the op stays.
    assert on_gpu(100e-6, launched(8e-6, 2e-6, 10), 1e-6).ops[0].host_seconds == pytest.approx(LEAST_OWN * 8e-6)
