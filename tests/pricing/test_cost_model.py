"""The price of an op: a floor that physics bound from below, times a learnt residual, and what it rests on."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from described import spec, work
from priced import FLAT, RATES, call, device, elementwise, family, matmul
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import Matern

from placer.errors import ProfileError
from placer.pricing import (
    PUBLISHED,
    CostModel,
    Effort,
    fitted_features,
    floor_amounts,
    foreign_family,
    inputs_of,
    op_label,
    peak,
)
from placer.pricing.describe import on_accelerator
from placer.pricing.floors import allows_tf32, arithmetic, floor_seconds, roofline_parts, roofline_seconds
from placer.pricing.gaussian_process import UNKNOWN_OP, Residual, with_weights
from placer.pricing.gpu import edition
from placer.pricing.prediction import SIGMA
from placer.profile import FamilyFit
from placer.tracing.trace_data import Trace

# --- floors -------------------------------------------------------------------------------------------------------


def test_the_roofline_takes_the_slower_of_arithmetic_and_memory() -> None:
    assert roofline_seconds(matmul(1000), device()) == pytest.approx(1e-6 + 2e9 / 1e11)
    assert roofline_seconds(replace(matmul(1000), flops=1.0), device()) == pytest.approx(1e-6 + 1.2e7 / 1e10)
    assert roofline_seconds(matmul(1000, "bfloat16"), device()) == pytest.approx(1e-6 + 2e9 / 2e11)
    update = work("optimizer::Adam", [spec(1000)], [], phase="optimizer")
    on_cpu, on_gpu = roofline_parts(update, device()), roofline_parts(update, replace(device(), device="cuda"))
    assert on_cpu == pytest.approx((12e-6, 12_000 / 1e11, 28_000 / 1e10))  # a loop of a dozen ops
    assert on_gpu == pytest.approx((7e-6, 12_000 / 1e11, 28_000 / 1e10))  # seven over all tensors, of which it is one


def test_the_floor_adds_up_what_an_op_is_made_of_and_promises_nothing_impossible() -> None:
    plain = 2e-6 + 2e6 * 5e-11 + 1.2e5 * 1e-10
    own = {"latency@aten::bmm": 7e-6, "flops@aten::bmm": 1e-10, "bytes@aten::bmm": 0.0}
    assert floor_seconds(matmul(100), device(), {**FLAT, **own}) == pytest.approx(plain)
    assert floor_seconds(matmul(100, op="aten::bmm"), device(), {**FLAT, **own}) == pytest.approx(7e-6 + 2e6 * 1e-10)
    nothing = {"latency": 0.0, "flops": 0.0, "bytes": 0.0}
    assert floor_seconds(matmul(1000), device(), nothing) == pytest.approx(roofline_seconds(matmul(1000), device()) / 3)


def test_a_slower_dtype_costs_more_and_a_faster_one_not_less_and_neither_twice() -> None:
    cpu, gpu, flops = device(), replace(device(), device="cuda"), 2.5e8
    plain = floor_seconds(matmul(500), cpu, FLAT)
    product = matmul(500, "float64")
    assert floor_seconds(product, cpu, FLAT) == pytest.approx(plain + flops * (2e-11 - 1e-11))
    assert floor_seconds(matmul(500, "bfloat16"), cpu, FLAT) == pytest.approx(plain)
    own = {**FLAT, **{f"{name}@aten::mm:float64": cost for name, cost in FLAT.items()}}
    assert floor_seconds(product, cpu, own) == pytest.approx(2e-6 + flops * 5e-11 + 3e6 * 1e-10)
    counted = 2 * flops  # in FLOPs of float32, which take half as long
    assert floor_seconds(product, gpu, FLAT) == pytest.approx(2e-6 + counted * 5e-11 + 3e6 * 1e-10)


@pytest.fixture
def switches() -> Iterator[None]:
    """The process's switches for TF32 as torch has them, also afterwards."""

    def reset() -> None:
        if hasattr(torch.backends, "fp32_precision"):
            torch.backends.cudnn.conv.fp32_precision = torch.backends.cudnn.rnn.fp32_precision = "tf32"  # type: ignore
            torch.backends.cuda.matmul.fp32_precision = "none"
        torch.set_float32_matmul_precision("highest")
        torch.backends.cudnn.allow_tf32 = True

    reset()
    yield
    reset()


@pytest.mark.usefixtures("switches")
def test_what_multiplies_matrices_runs_at_the_rate_that_torch_allows() -> None:
    product, half = (
        work("aten::mm", [spec(64, 32, dtype=dtype), spec(32, 16, dtype=dtype)], [spec(64, 16, dtype=dtype)])
        for dtype in ("float32", "bfloat16")
    )
    image, depthwise = (
        work("aten::convolution", [spec(2, 8, 16, 16), spec(8, channels, 3, 3)], [spec(2, 8, 16, 16)])
        for channels in (8, 1)
    )
    added = work("aten::add", [spec(64, dtype="bfloat16")] * 2, [spec(64, dtype="bfloat16")])
    assert [arithmetic(each) for each in (product, image, depthwise)] == ["float32", "tf32", "float32"]
    assert (arithmetic(half), arithmetic(added)) == ("bfloat16", "float32")
    rates = {"flops/float32": 1e13, "flops/tf32": 8e13, "flops/bfloat16": 16e13, "bytes_per_second": 1e12}
    counted = [floor_amounts(each, rates, cpu=False)["flops"] / each.flops for each in (product, half, image)]
    assert counted == pytest.approx([1.0, 1 / 16, 1 / 8])
    assert floor_amounts(half, rates)["flops"] == half.flops  # a CPU's are counted as they are
    assert peak(image, {"flops/float32": 1e13}, cpu=False) == 1e13  # of a profile that knows no TF32
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.allow_tf32 = False
    assert [arithmetic(each) for each in (product, image, depthwise)] == ["tf32", "float32", "float32"]


@pytest.mark.usefixtures("switches")
@pytest.mark.skipif(not hasattr(torch.backends, "fp32_precision"), reason="this torch has one switch for each library")
def test_the_newer_switches_are_told_apart_where_torch_refuses_to_answer_the_older_ones() -> None:
    torch.backends.cudnn.rnn.fp32_precision = "ieee"  # type: ignore[attr-defined]
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    assert [allows_tf32(switch) for switch in ("matmul", "conv", "rnn")] == [True, True, False]  # type: ignore[arg-type]


# --- residuals ----------------------------------------------------------------------------------------------------


def residual(n: int = 25, noise: float = 1e-9, **changes: Any) -> FamilyFit:
    """A process through ``n`` points of three ops over three features."""
    random = np.random.default_rng(3)
    x = random.uniform(0, 5, (n, 3)).astype(np.float32)
    fit = FamilyFit(
        feature_names=("a", "b", "kinds"), ops=("add", "mul", "exp"), x=x, op_index=random.integers(0, 3, n),
        y=np.sin(x.sum(1)) + random.normal(0, 0.1, n), point_noise=np.full(n, noise), length_scales=(0.7, 1.5, 3.0),
        op_scale=1.3, mean=0.4, signal=0.9, noise=noise, parameters={}, measured=n,
    )  # fmt: skip
    return replace(fit, **changes)


def test_the_numbers_are_scikit_learns() -> None:
    fit = residual(noise=0.05, op_index=np.zeros(25, dtype=np.int64))
    kernel = fit.signal * Matern(fit.length_scales, nu=1.5)
    other = GaussianProcessRegressor(kernel, alpha=fit.point_noise + 1e-9 * fit.signal, optimizer=None)
    other.fit(fit.x.astype(float), fit.y - fit.mean)
    new = np.random.default_rng(4).uniform(-1, 6, (40, 3))
    expected, deviation = other.predict(new, return_std=True)
    for known in (fit, with_weights(fit)):  # solved for once, or each time
        mean, variance = Residual(known).predict(new, np.zeros(40, dtype=np.int64))
        assert mean == pytest.approx(expected + fit.mean, abs=1e-5)
        assert variance == pytest.approx(deviation**2, abs=1e-5)


def test_what_is_covered_is_a_sampled_op_near_the_samples_wherever_it_stands() -> None:
    fit = residual()
    low, high = fit.x.min(0), fit.x.max(0)
    inside, apart = (low + high) / 2, np.diag([1.1, 1.1, 99.0])
    asked = np.array([inside, high + 1.0, high + apart[0], low - apart[1], inside + apart[2], inside])
    found = Residual(fit).covers(asked, np.array([0, 1, 0, 0, 0, UNKNOWN_OP]))
    assert found.tolist() == [True, True, False, False, True, False]
    assert not Residual(replace(fit, measured=0)).covers(asked, np.zeros(6, dtype=np.int64)).any()


# --- prices -------------------------------------------------------------------------------------------------------


def test_a_sampled_op_costs_what_it_was_measured_at_and_others_what_physics_say() -> None:
    works = [matmul(n) for n in (16, 64, 256)]
    fit = device({"matmul": family(works, [math.log(3.0), 0.0, math.log(0.5)], FLAT)})
    other = elementwise("aten::add", 10.0, 80.0)
    seconds, sigma, sources = CostModel(fit).price_works([other, *works, other])
    floors = [floor_seconds(work, fit, FLAT) for work in works]
    assert seconds[1:4] == pytest.approx([3 * floors[0], floors[1], floors[2] / 2], rel=1e-3)
    assert max(sigma[1:4]) < 0.01
    assert seconds[0] == seconds[4] == pytest.approx(roofline_seconds(other, fit))
    assert sources == ["guess", "calibrated", "calibrated", "calibrated", "guess"]
    assert math.exp(1.645 * sigma[0]) == pytest.approx(3.0)
    in_table = replace(other, effort=Effort(10.0, 80.0))
    _, sigma, sources = CostModel(fit).price_works([in_table])
    assert (sigma, sources) == ([SIGMA["physics"]], ["physics"])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_an_op_in_a_layout_that_was_not_seen_costs_what_it_does_in_others(dtype: str) -> None:
    plain, rows, other = (matmul(64, dtype, op) for op in ("aten::mm", "aten::mm.rows", "aten::bmm"))
    own = {f"{name}@{op_label(plain)}": 2.0 * cost for name, cost in FLAT.items()}
    fit = device({"matmul": family([plain, other], [math.log(3.0), 0.0], {**FLAT, **own})})
    seconds, _, sources = CostModel(fit).price_works([plain, rows, other])
    assert seconds[0] == seconds[1] != pytest.approx(seconds[2], rel=0.5)
    assert sources == ["calibrated"] * 3


def test_a_trace_is_priced_call_by_call() -> None:
    calls = (call("aten::mm", 64, 64, layer="a"), call("aten::add", 64, 64), call("aten::mm", 64, 64, layer="b"))
    trace = Trace(calls, "train", (), (), (), ())
    priced = CostModel(device()).price(trace)
    assert priced.trace is trace
    assert priced.families == ("matmul", "elementwise", "matmul")
    assert priced.seconds[0] == priced.seconds[2] != priced.seconds[1]
    assert (priced.host_seconds, priced.kernels) == ((0.0, 0.0, 0.0), ())


@pytest.mark.parametrize("missing", ["dispatch_seconds", "flops/float32", "bytes_per_second"])
def test_a_fit_without_a_floor_is_refused(missing: str) -> None:
    for rates in ({k: v for k, v in RATES.items() if k != missing}, {**RATES, missing: 0.0}):
        with pytest.raises(ProfileError, match=rf"cannot predict on cpu: it has no {missing}; run: placer calibrate"):
            CostModel(replace(device(), rates=rates))
    with pytest.raises(ProfileError, match="it has no latency of matmul; run"):
        CostModel(device({"matmul": family([matmul(64)], [0.0], {"flops": 1.0})}))


def test_a_fit_of_other_features_or_published_prices_is_refused() -> None:
    own = family([matmul(64)], [0.0], FLAT)
    assert len(fitted_features("matmul")) == len(inputs_of(matmul(4)))
    assert (foreign_family(device({"matmul": own})), foreign_family(device({"softmax": own}))) == (None, "softmax")
    other = replace(own, feature_names=("flops", "bytes", "m"))
    with pytest.raises(ProfileError, match=r"another version of placer \(features of 'matmul' differ\).*calibrate"):
        CostModel(device({"matmul": other}))
    with pytest.raises(ProfileError, match="calibrate"):
        CostModel(device({"no such family": other}))
    gpu = replace(device(), device="cuda", gpu="Tesla T4")

    def built_on(edition: float, **values: str) -> CostModel:
        learnt = family([on_accelerator(matmul(64))], [math.log(2.0)], {**FLAT, PUBLISHED: edition})
        return CostModel(replace(gpu, families={"matmul": learnt}, **values))  # type: ignore[arg-type]

    now = built_on(edition())
    (plain,) = CostModel(gpu).price_works([matmul(64)])[0]
    assert now.price_works([matmul(64)])[0] == [pytest.approx(2 * plain, rel=1e-3)]
    assert now.provenance == "calibrated"
    for refused in (lambda: built_on(edition() + 1.0), lambda: built_on(edition(), gpu="")):
        with pytest.raises(ProfileError, match="other published times"):
            refused()
