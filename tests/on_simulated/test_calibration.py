"""Calibration of an accelerator finds what the device was built with, by its own timer and by torch's recorder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from on_simulated.two_devices import Assemble
from simulated.device import DEVICE, SimulatedDevice
from simulated.spec import SPEC
from torch import nn

from placer.calibration.benchmarks.probe import Probe
from placer.calibration.measuring import recording
from placer.calibration.measuring.bench import Bench
from placer.calibration.measuring.recording import Recorded, try_recorder
from placer.calibration.measuring.step import Step, make_optimizer
from placer.pricing.predict import predict
from placer.pricing.timeline import SIZES
from placer.profile.profile import Profile
from placer.tracing import trace
from placer.workload import Workload, make_workload

TENTH = 0.1


def test_the_rates_are_those_the_device_was_built_with(calibrated_sim: Profile) -> None:
    rates = calibrated_sim.fit("sim").rates
    expected = {
        "flops/float32": SPEC.flops,
        "flops/tf32": SPEC.flops,
        "flops/bfloat16": SPEC.flops,
        "flops/float64": SPEC.flops_float64,
        "bytes_per_second": SPEC.bytes_per_second,
        "issue_seconds": SPEC.issue,
        "launch_seconds": SPEC.launch,
        "dispatch_seconds": SPEC.kernel,
        "sync_seconds": SPEC.sync,
        "context_seconds": SPEC.context,
        "first_call_seconds": SPEC.first_call,
        "memory_bytes": SPEC.memory,
        "first_use/convolution": SPEC.first_call,
        "first_use/fourier": SPEC.first_call,
        "first_use/product": SPEC.first_call,
        "first_use/linear_algebra": SPEC.first_call,
        "first_use/shape": 0.0,
    }
    for (direction, memory), cost in SPEC.copies.items():
        prefix = f"copy/{direction}/{memory}"
        expected[f"{prefix}/seconds_per_tensor"] = cost.seconds_per_tensor
        expected[f"{prefix}/bytes_per_second"] = cost.bytes_per_second
        if memory == "pageable":  # as far as a sixteenth of its memory has room
            for size in (size for size in SIZES if size <= SPEC.memory / 16):
                expected[f"{prefix}/{size}"] = cost.seconds_per_tensor + size / cost.bytes_per_second
    assert rates == {name: pytest.approx(value, rel=TENTH) for name, value in expected.items()}
    assert "flops/float16" not in rates  # refused by the device


def test_ops_are_timed_in_place_and_whole_ops_with_what_is_in_them(device: SimulatedDevice) -> None:
    class Layers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(256, 256)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.linear(x).unflatten(-1, (4, 64)).transpose(1, 2)
            return nn.functional.scaled_dot_product_attention(x, x, x)

    probe = Probe("network", "attention", Layers, lambda: (torch.randn(8, 32, 256),), "train", "adam")
    rates = {"launch_seconds": SPEC.launch, "sync_seconds": SPEC.sync}
    seen = Bench("sim", 2, rates=rates, clock=device.clock).measure(probe, seconds=0.01)
    assert seen is not None
    ops = {op.op: op for op in seen.ops if op.seconds}
    product = ops["aten::addmm"]
    assert product.seconds == pytest.approx(SPEC.kernel + product.work().flops / SPEC.flops, rel=TENTH)
    assert product.host_seconds == pytest.approx(SPEC.issue, rel=TENTH)
    for name in ("aten::scaled_dot_product_attention", "aten::scaled_dot_product_attention_backward"):
        assert ops[name].seconds > 4 * SPEC.kernel
    adam = ops["optimizer::Adam"]
    assert adam.seconds > 6 * SPEC.kernel
    assert adam.host_seconds > 6 * SPEC.issue
    everything = sum((op.seconds or 0.0) * op.count for op in seen.ops)
    assert 0.9 * everything <= seen.seconds


# --- a step as predicted and as the device takes it ---


def workload(batch: int, data: str) -> Workload:
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 1))
    return make_workload(model, batch=(torch.randn(batch, 64),), mode="train", optimizer="adam", data=data)


def measured(work: Workload) -> float:
    """Seconds of a step in a row of steps."""
    step = Step(work, "sim", make_optimizer(work.model.to("sim"), "adam"))  # type: ignore[union-attr]
    step.prepare()
    marks = []
    for _ in range(4):
        step()
        marks.append(max(DEVICE.clock.now, DEVICE.queue.free_at))
    return marks[-1] - marks[-2]


@pytest.mark.parametrize("data", ["host", "pinned", "device"])
@pytest.mark.parametrize("batch", [16, 2048])
def test_steps_are_predicted_wherever_batches_live(
    batch: int, data: str, device: SimulatedDevice, with_its_host: Profile
) -> None:
    """A step that waits for the host and one that waits for the device."""
    predicted = predict(trace(workload(batch, data)), with_its_host, devices=("sim",), data=data)["sim"]
    assert predicted.step_seconds == pytest.approx(measured(workload(batch, data)), rel=0.15)


# --- what the recorder shows of a device's kernels, and of those that it loses ---


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
