"""What limits the ops, and what a step is bounded by: both add up to what was predicted."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from torch import nn

from placer.pricing.bounds import COMPUTE_PARTS, compute_parts, op_limit, step_bounds
from placer.pricing.describe import describe_step
from placer.pricing.predict import predict
from placer.pricing.prediction import Prediction
from placer.profile.profile import Profile
from placer.tracing import trace as trace_workload
from placer.workload import Data, make_workload


def predictions(
    profile: Profile, model: nn.Module, shape: tuple[int, ...], mode: str = "train", data: Data = "host"
) -> dict[str, Prediction]:
    trace = trace_workload(make_workload(model, shape, mode=mode, data=data))
    return predict(trace, profile, devices=("cpu", "cuda"), data=data)


def with_rates(profile: Profile, **rates: float) -> Profile:
    cpu, cuda = profile.fits
    changed = dataclasses.replace(cuda, rates={**cuda.rates, **{k.replace("__", "/"): v for k, v in rates.items()}})
    return dataclasses.replace(profile, fits=(cpu, changed))


def test_the_parts_add_up_to_the_compute_component_and_the_bounds_to_the_step(handmade_profile: Profile) -> None:
    found = predictions(handmade_profile, nn.Sequential(nn.Linear(84, 64), nn.ReLU(), nn.Linear(64, 1)), (512, 84))
    for prediction in found.values():
        fit = prediction.priced.fit
        assert fit is not None
        parts = compute_parts(prediction.priced, fit)
        assert list(parts) == list(COMPUTE_PARTS)
        assert sum(parts.values()) == pytest.approx(prediction.components["compute"])
        assert parts["optimizer"] > 0.0
        bounds = step_bounds(prediction.priced, prediction.components, fit)
        assert sum(bounds.values()) == pytest.approx(prediction.step_seconds)
        assert prediction.bounded_by == max(bounds, key=lambda name: bounds[name])


def test_a_large_product_is_arithmetic_a_large_sum_memory_and_a_tiny_op_overhead(handmade_profile: Profile) -> None:
    class Mixed(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (x @ x) + x

    cpu = handmade_profile.fit("cpu")
    for size, expected in ((1024, {"mm": "arithmetic", "add": "memory"}), (2, {"mm": "overhead", "add": "overhead"})):
        trace = trace_workload(make_workload(Mixed(), (size, size), mode="infer"))
        works = zip(trace.calls, describe_step(trace), strict=True)
        found = {call.op.removeprefix("aten::"): op_limit(work, cpu) for call, work in works}
        assert {name: found[name] for name in expected} == expected


class Reads(nn.Module):
    """Reads a value back from the device."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * float(x.sum())


STEPS: list[Any] = [
    (nn.Linear(8, 8), (4, 8), "train", "device", {}, "launches"),  # the host needs 10 µs an op, the device 2
    (nn.Linear(4096, 4), (8192, 4096), "infer", "host", {}, "transfer"),  # 134 MB at 5 GB/s
    (nn.Linear(4096, 4096), (4096, 4096), "infer", "device", {"copy__d2h__pageable__bytes_per_second": 1e12},
     "arithmetic"),
    (nn.ReLU(), (65536, 4096), "infer", "device", {"copy__d2h__pageable__bytes_per_second": 1e13}, "memory"),
    (Reads(), (8, 8), "infer", "device", {"sync_seconds": 1.0}, "waits"),
]  # fmt: skip


@pytest.mark.parametrize(("model", "shape", "mode", "data", "rates", "expected"), STEPS)
def test_an_accelerators_step_is_bounded_by(
    handmade_profile: Profile, model: nn.Module, shape: tuple[int, ...], mode: str, data: Data,
    rates: dict[str, float], expected: str,
) -> None:  # fmt: skip
    found = predictions(with_rates(handmade_profile, **rates), model, shape, mode, data)["cuda"]
    assert found.bounded_by == expected


def test_a_cpu_is_bounded_by_starting_small_ops_and_by_arithmetic_of_large_ones(handmade_profile: Profile) -> None:
    assert predictions(handmade_profile, nn.Linear(2, 2), (1, 2))["cpu"].bounded_by == "launches"
    assert predictions(handmade_profile, nn.Linear(1024, 1024), (1024, 1024))["cpu"].bounded_by == "arithmetic"
    assert predictions(handmade_profile, nn.ReLU(), (4096, 4096), "infer")["cpu"].bounded_by == "memory"


def test_a_host_that_is_late_bounds_the_step_however_busy_the_device(handmade_profile: Profile) -> None:
    """The device is busy for two thirds of the step, and faster kernels would still save nothing."""
    cpu, cuda = handmade_profile.fits
    late = dataclasses.replace(cuda, rates={**cuda.rates, "dispatch_seconds": 8e-6})
    found = predictions(dataclasses.replace(handmade_profile, fits=(cpu, late)), nn.Linear(8, 8), (4, 8), "train",
                        "device")["cuda"]  # fmt: skip
    assert found.components["compute"] > found.components["dispatch"]
    assert found.bounded_by == "launches"
    # Also where the kernels are bound by memory.
    slow = dataclasses.replace(cuda, rates={**cuda.rates, "dispatch_seconds": 1e-9, "bytes_per_second": 7e7})
    deep = nn.Sequential(*(nn.Linear(8, 8) for _ in range(6)))
    profile = dataclasses.replace(handmade_profile, fits=(cpu, slow))
    assert predictions(profile, deep, (4, 8), "infer", "device")["cuda"].bounded_by == "launches"


def test_a_cpus_framework_bounds_nothing_but_itself(handmade_profile: Profile) -> None:
    """Python takes longer than the ops here; a CPU does both, so the ops still have bounds of their own."""
    cpu, cuda = handmade_profile.fits
    slow = dataclasses.replace(cpu, framework={"step": 1.0})
    profile = dataclasses.replace(handmade_profile, fits=(slow, cuda))
    found = predictions(profile, nn.Linear(1024, 1024), (1024, 1024))["cpu"]
    assert found.priced.fit is not None
    bounds = step_bounds(found.priced, found.components, found.priced.fit)
    assert found.bounded_by == "launches"
    assert bounds["arithmetic"] > 0.01
    assert sum(bounds.values()) == pytest.approx(found.step_seconds)
