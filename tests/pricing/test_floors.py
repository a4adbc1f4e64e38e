"""Floors, the precision of products, and what bounds ops and steps."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from described import spec, work
from priced import FLAT, device, matmul
from torch import nn

from placer.pricing.describe import describe_step
from placer.pricing.floors import (
    COMPUTE_PARTS,
    allows_tf32,
    arithmetic,
    compute_parts,
    floor_amounts,
    floor_parts,
    floor_seconds,
    op_limit,
    peak,
    roofline_parts,
    roofline_seconds,
    step_bounds,
)
from placer.pricing.predict import predict
from placer.pricing.prediction import Prediction
from placer.profile.profile import Profile
from placer.tracing import trace as trace_workload
from placer.workload import Data, make_workload


def test_the_roofline_takes_the_slower_of_arithmetic_and_memory() -> None:
    assert roofline_seconds(matmul(1000), device()) == pytest.approx(1e-6 + 2e9 / 1e11)
    assert roofline_seconds(replace(matmul(1000), flops=1.0), device()) == pytest.approx(1e-6 + 1.2e7 / 1e10)


def test_the_parts_of_the_roofline() -> None:
    assert roofline_parts(matmul(1000), device()) == pytest.approx((1e-6, 2e9 / 1e11, 1.2e7 / 1e10))
    update = work("optimizer::Adam", [spec(1000)], [], phase="optimizer")
    on_cpu, on_gpu = roofline_parts(update, device()), roofline_parts(update, replace(device(), device="cuda"))
    assert on_cpu == pytest.approx((12e-6, 12_000 / 1e11, 28_000 / 1e10))  # a loop of a dozen ops
    assert on_gpu == pytest.approx((7e-6, 12_000 / 1e11, 28_000 / 1e10))  # seven over all tensors, of which it is one


def test_a_dtype_has_its_own_peak_or_a_guess() -> None:
    fit = device()
    assert roofline_seconds(matmul(1000, "bfloat16"), fit) == pytest.approx(1e-6 + 2e9 / 2e11)
    assert roofline_seconds(matmul(1000, "float64"), fit) == pytest.approx(1e-6 + 2e9 / 0.5e11)


def test_the_floor_adds_up_what_an_op_is_made_of() -> None:
    assert floor_seconds(matmul(100), device(), FLAT) == pytest.approx(2e-6 + 2e6 * 5e-11 + 1.2e5 * 1e-10)


def test_an_ops_own_costs_win_over_its_familys() -> None:
    own = {"latency@aten::bmm": 7e-6, "flops@aten::bmm": 1e-10, "bytes@aten::bmm": 0.0}
    assert floor_seconds(matmul(100, op="aten::bmm"), device(), {**FLAT, **own}) == pytest.approx(7e-6 + 2e6 * 1e-10)
    assert floor_seconds(matmul(100), device(), {**FLAT, **own}) == floor_seconds(matmul(100), device(), FLAT)


def test_a_slower_dtype_costs_more_and_a_faster_one_not_less() -> None:
    fit = device()
    plain = floor_seconds(matmul(500), fit, FLAT)
    assert floor_seconds(matmul(500, "float64"), fit, FLAT) == pytest.approx(plain + 2.5e8 * (2e-11 - 1e-11))
    assert floor_seconds(matmul(500, "bfloat16"), fit, FLAT) == pytest.approx(plain)


def test_no_floor_promises_the_impossible() -> None:
    nothing = {"latency": 0.0, "flops": 0.0, "bytes": 0.0}
    assert floor_seconds(matmul(1000), device(), nothing) == pytest.approx(roofline_seconds(matmul(1000), device()) / 3)


def test_a_dtype_that_runs_at_another_rate_is_not_charged_twice() -> None:
    """Where the op has costs of its own, and on an accelerator, they are those of its dtype."""
    product, nothing = matmul(500, "float64"), {"latency": 0.0}
    own = {**FLAT, **{f"{name}@aten::mm:float64": cost for name, cost in FLAT.items()}}
    assert floor_seconds(product, device(), own) == pytest.approx(2e-6 + 2.5e8 * 5e-11 + 3e6 * 1e-10)
    gpu = replace(device(), device="cuda")
    counted = 2.5e8 * 2  # in FLOPs of float32, which take half as long
    assert floor_seconds(product, gpu, FLAT) == pytest.approx(2e-6 + counted * 5e-11 + 3e6 * 1e-10)
    assert floor_parts(product, gpu, {**FLAT, **nothing})[1] == 1.0


def test_a_dtype_that_was_not_measured_is_assumed() -> None:
    assumed = {"float64": 4.0, "bfloat16": 8.0, "float16": 8.0, "complex64": 2.0, "complex128": 1.0, "int8": 8.0}
    assert {dtype: peak(matmul(4, dtype), {"flops/float32": 8.0}) for dtype in assumed} == assumed
    assert peak(matmul(4, "float64"), {"flops/float32": 8.0, "flops/float64": 3.0}) == 3.0

RATES = {"flops/float32": 1e13, "flops/tf32": 8e13, "flops/bfloat16": 16e13, "bytes_per_second": 1e12}


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = True
    yield
    if hasattr(torch.backends, "fp32_precision"):
        torch.backends.cudnn.conv.fp32_precision = torch.backends.cudnn.rnn.fp32_precision = "tf32"  # type: ignore
        torch.backends.cuda.matmul.fp32_precision = "none"
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = True


PRODUCT, HALF_PRODUCT = (
    work("aten::mm", [spec(64, 32, dtype=dtype), spec(32, 16, dtype=dtype)], [spec(64, 16, dtype=dtype)])
    for dtype in ("float32", "bfloat16")
)
CONVOLUTION, DEPTHWISE = (
    work("aten::convolution", [spec(2, 8, 16, 16), spec(8, channels, 3, 3)], [spec(2, 8, 16, 16)])
    for channels in (8, 1)
)
HALF_SUM = work("aten::add", [spec(64, dtype="bfloat16")] * 2, [spec(64, dtype="bfloat16")])


def test_convolutions_run_in_tf32_unless_told_otherwise_and_products_do_not() -> None:
    assert [arithmetic(one) for one in (PRODUCT, CONVOLUTION, DEPTHWISE)] == ["float32", "tf32", "float32"]
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.allow_tf32 = False
    assert [arithmetic(one) for one in (PRODUCT, CONVOLUTION, DEPTHWISE)] == ["tf32", "float32", "float32"]


def test_only_what_multiplies_matrices_runs_at_the_rate_of_half_precision() -> None:
    assert (arithmetic(HALF_PRODUCT), arithmetic(HALF_SUM)) == ("bfloat16", "float32")


@pytest.mark.skipif(not hasattr(torch.backends, "fp32_precision"), reason="this torch has one switch for each library")
def test_the_newer_switches_are_told_apart_where_torch_refuses_to_answer_the_older_ones() -> None:
    torch.backends.cudnn.rnn.fp32_precision = "ieee"  # type: ignore[attr-defined]
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    assert [allows_tf32(switch) for switch in ("matmul", "conv", "rnn")] == [True, True, False]  # type: ignore[arg-type]


def test_an_accelerators_flops_count_by_the_peak_of_what_they_run_in() -> None:
    def counted(one: object) -> float:
        return floor_amounts(one, RATES, cpu=False)["flops"] / one.flops  # type: ignore

    assert counted(PRODUCT) == 1.0
    assert counted(HALF_PRODUCT) == pytest.approx(1 / 16)
    assert counted(CONVOLUTION) == pytest.approx(1 / 8)
    torch.backends.cudnn.allow_tf32 = False
    assert counted(CONVOLUTION) == 1.0
    assert floor_amounts(HALF_PRODUCT, RATES)["flops"] == HALF_PRODUCT.flops  # a CPU's are counted as they are
    assert peak(CONVOLUTION, {"flops/float32": 1e13}, cpu=False) == 1e13  # of a profile that knows no TF32


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
