"""The roofline, and the floor fitted for a family or for an op."""

from __future__ import annotations

from dataclasses import replace

import pytest
from described import spec, work
from priced import FLAT, device, matmul

from placer.pricing.floors import floor_parts, floor_seconds, peak, roofline_parts, roofline_seconds


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
