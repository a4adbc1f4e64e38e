"""Calibration of an accelerator without a profiler finds what the device was built with."""

from __future__ import annotations

import pytest
import torch
from simulated.device import SimulatedDevice
from simulated.spec import SPEC

from placer.calibration.benchmarks.probe import Probe
from placer.calibration.measuring.bench import Bench
from placer.pricing.timeline import SIZES
from placer.profile.profile import Profile

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
    class Layers(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(256, 256)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.linear(x).unflatten(-1, (4, 64)).transpose(1, 2)
            return torch.nn.functional.scaled_dot_product_attention(x, x, x)

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
