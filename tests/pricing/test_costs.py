"""Profile -> seconds: the roofline, the fitted floor, the residual, and what a price is based on."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest
import torch
from torch import nn

from placer.errors import ProfileError
from placer.pricing.cost_model import FLOOR_SIGMA, CostModel
from placer.pricing.describe import describe_step, feature_names
from placer.pricing.floors import ARITHMETIC_BY_FLOOR, LEAST_SHARE, LOOPS_BY_FLOOR, floor_parts, floor_seconds, roofline_seconds
from placer.pricing.kernels import SUFFIX
from placer.pricing.op_labels import op_label
from placer.pricing.page_faults import SETTLED
from placer.pricing.residual_inputs import fitted_features, inputs_of
from placer.pricing.work import Work
from placer.profile.profile import DeviceFit, FamilyFit
from placer.tracing import trace
from placer.tracing.trace_data import MemoryEvent, OpCall, TensorSpec, Trace
from placer.workload import make_workload

RATES = {"dispatch_seconds": 1e-6, "flops/float32": 1e11, "flops/bfloat16": 2e11, "bytes_per_second": 1e10}


def matmul(n: int, dtype: str = "float32", op: str = "aten::mm") -> Work:
    sizes = (1, n, n, n, n * n, n * n, n * n, n, 1e6, 1, 0, 0)
    return Work("matmul", op, dtype, 2.0 * n**3, 12.0 * n * n, sizes, (0,) * 10)


def device(families: Mapping[str, FamilyFit] | None = None, **rates: float) -> DeviceFit:
    return DeviceFit("cpu", 1, {**RATES, **rates}, families or {}, {}, {})


def family(works: list[Work], residuals: list[float], parameters: Mapping[str, float]) -> FamilyFit:
    rows = [inputs_of(work) for work in works]
    ops = tuple(sorted({op_label(work) for work in works}))
    return FamilyFit(
        feature_names=("flops", "bytes", *feature_names("matmul")), ops=ops, x=tuple(rows),
        op_index=tuple(ops.index(op_label(work)) for work in works), y=tuple(residuals),
        point_noise=(1e-6,) * len(works), length_scales=(8.0,) * len(rows[0]), op_scale=1.0, mean=0.0, signal=1.0,
        noise=1e-6, parameters=parameters, measured=len(works),
    )  # fmt: skip


FLAT = {"latency": 2e-6, "flops": 5e-11, "bytes": 1e-10}


def test_the_roofline_takes_the_slower_of_arithmetic_and_memory() -> None:
    assert roofline_seconds(matmul(1000), device()) == pytest.approx(1e-6 + 2e9 / 1e11)
    assert roofline_seconds(replace(matmul(1000), flops=1.0), device()) == pytest.approx(1e-6 + 1.2e7 / 1e10)


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


def test_another_dtype_is_another_op() -> None:
    assert op_label(matmul(4)) == "aten::mm"
    assert op_label(matmul(4, "bfloat16")) == "aten::mm:bfloat16"


@pytest.mark.parametrize(
    ("layer", "label"),
    [
        (nn.Conv2d(8, 16, 3), "aten::convolution"),
        (nn.Conv2d(8, 16, 3, groups=2), "aten::convolution"),
        (nn.Conv2d(8, 8, 3, groups=8), "aten::convolution/depthwise"),
        (nn.Conv2d(8, 8, 3, groups=8, dilation=2), "aten::convolution/dilated_depthwise"),
        (nn.Conv2d(8, 8, 1, groups=8, dilation=2), "aten::convolution/depthwise"),
        (nn.Conv2d(8, 16, 3, groups=8, dtype=torch.float64), "aten::convolution/depthwise:float64"),
    ],
)
def test_a_depthwise_convolution_is_an_op_of_its_own(layer: nn.Conv2d, label: str) -> None:
    image = torch.randn(2, 8, 6, 6, dtype=layer.weight.dtype)
    traced = trace(make_workload(layer, example=(image,), mode="train"))
    found = {call.op: op_label(work) for call, work in zip(traced.calls, describe_step(traced), strict=True)}
    assert found["aten::convolution"] == label
    assert found["aten::convolution_backward"] == label.replace("convolution", "convolution_backward")


@pytest.mark.parametrize(
    ("layer", "shape", "label"),
    [
        (nn.BatchNorm1d(8), (4, 8), "aten::native_batch_norm.rows"),
        (nn.BatchNorm1d(8), (4, 8, 1), "aten::native_batch_norm"),
        (nn.BatchNorm2d(8), (4, 8, 3, 3), "aten::native_batch_norm"),
        (nn.LayerNorm(8), (4, 8), "aten::native_layer_norm"),
    ],
)
def test_a_batch_norm_of_rows_is_an_op_of_its_own(layer: nn.Module, shape: tuple[int, ...], label: str) -> None:
    traced = trace(make_workload(layer, shape))
    found = {call.op: op_label(work) for call, work in zip(traced.calls, describe_step(traced), strict=True)}
    assert found[label.partition(SUFFIX)[0]] == label


@pytest.mark.parametrize(
    ("picked", "label"), [(lambda x: x > 0, "aten::index_put.mask"), (lambda x: x.argmax(0), "aten::index_put")]
)
def test_an_assignment_by_a_mask_is_an_op_of_its_own(
    picked: Callable[[torch.Tensor], torch.Tensor], label: str
) -> None:
    class Assigned(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out = torch.zeros_like(x)
            out[picked(x)] = 1.0
            return x * out

    traced = trace(make_workload(Assigned(), (3, 4), mode="infer"))
    assert label in {op_label(work) for work in describe_step(traced)}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_an_op_in_a_layout_that_was_not_seen_costs_what_it_does_in_others(dtype: str) -> None:
    plain, rows, other = (matmul(64, dtype, op) for op in ("aten::mm", f"aten::mm{SUFFIX}rows", "aten::bmm"))
    own = {f"{name}@{op_label(plain)}": 2.0 * cost for name, cost in FLAT.items()}
    fit = device({"matmul": family([plain, other], [math.log(3.0), 0.0], {**FLAT, **own})})
    seconds, _, sources = CostModel(fit).price_works([plain, rows, other])
    assert seconds[0] == seconds[1] != pytest.approx(seconds[2], rel=0.5)
    assert sources == ["calibrated"] * 3
    apart = device({"matmul": family([plain, rows], [math.log(3.0), 0.0], FLAT)})
    seconds, _, _ = CostModel(apart).price_works([plain, rows])
    assert seconds[0] == pytest.approx(3 * seconds[1], rel=1e-3)


def test_a_family_without_samples_is_priced_by_physics_and_says_so() -> None:
    seconds, sigma, sources = CostModel(device()).price_works([matmul(1000)])
    assert seconds == pytest.approx([roofline_seconds(matmul(1000), device())])
    assert sigma == [FLOOR_SIGMA]
    assert sources == ["floor"]


def test_a_sampled_op_costs_what_it_was_measured_at() -> None:
    works = [matmul(n) for n in (16, 64, 256)]
    fit = device({"matmul": family(works, [math.log(3.0), 0.0, math.log(0.5)], FLAT)})
    seconds, sigma, sources = CostModel(fit).price_works(works)
    floors = [floor_seconds(work, fit, FLAT) for work in works]
    assert seconds == pytest.approx([3 * floors[0], floors[1], floors[2] / 2], rel=1e-3)
    assert max(sigma) < 0.01
    assert sources == ["calibrated"] * 3


def activation(op: str, numel: int, flops_each: float) -> Work:
    sizes = (numel, 8.0 * numel, numel, numel, 1e6, 1, 0, 0)
    return Work("elementwise", op, "float32", flops_each * numel, 8.0 * numel, sizes, (0,) * 8)


def test_the_residual_holds_for_what_is_not_arithmetic() -> None:
    told = {"latency": 1e-6, "flops": 1e-10, "bytes": 1e-10, ARITHMETIC_BY_FLOOR: 1.0}
    relu, mish, small = (
        activation("aten::relu", 10**6, 1),
        activation("aten::mish", 10**6, 40),
        activation("aten::mish", 8, 40),
    )
    assert [floor_parts(work, device(), told)[1] for work in (relu, mish)] == [1.0, pytest.approx(801 / 4801)]
    assert floor_parts(small, device(), told)[1] > 0.95
    assert floor_parts(activation("aten::lgamma", 10**6, 1e6), device(), told)[1] == LEAST_SHARE
    earlier = {name: cost for name, cost in told.items() if name != ARITHMETIC_BY_FLOOR}
    assert floor_parts(mish, device(), earlier) == (floor_seconds(mish, device(), told), 1.0)  # as it was fitted

    learnt = replace(family([relu, mish], [math.log(2.0)] * 2, told), feature_names=fitted_features("elementwise"))
    fit = device({"elementwise": learnt})
    (memory, arithmetic), (doubt, less), _ = CostModel(fit).price_works([relu, mish])
    assert memory == pytest.approx(2 * floor_seconds(relu, fit, told), rel=1e-3)
    assert arithmetic == pytest.approx(2 ** (801 / 4801) * floor_seconds(mish, fit, told), rel=1e-3)
    assert doubt < 0.01 < less  # the floor of arithmetic has an error of its own


def test_the_residual_holds_for_what_is_not_loops_beginning_anew() -> None:
    told = {"latency": 1e-6, "bytes": 1e-10, "restarts": 1e-9, "core_blocks": 2e-9, LOOPS_BY_FLOOR: 1.0}
    whole = activation("aten::clone", 9000, 1)
    patches = replace(whole, sizes=(*whole.sizes[:2], 3.0, 9.0, *whole.sizes[4:]))  # 2,999 new loops in 999 new blocks
    assert floor_parts(whole, device(), told)[1] == 1.0
    loops, rest = 2999e-9 + 999 * 2e-9, 1e-6 + 72_000e-10
    assert floor_parts(patches, device(), told) == (pytest.approx(loops + rest), pytest.approx(rest / (loops + rest)))
    earlier = {name: cost for name, cost in told.items() if name != LOOPS_BY_FLOOR}
    assert floor_parts(patches, device(), earlier) == (pytest.approx(loops + rest), 1.0)  # as it was fitted


def test_far_from_every_sample_only_the_floor_is_left() -> None:
    fit = device({"matmul": family([matmul(16)], [math.log(3.0)], FLAT)})
    huge = Work("matmul", "aten::mm", "float32", 1e60, 1e60, (*(1e30,) * 8, 1e60, 1, 0, 0), (0,) * 10)
    (seconds,), (sigma,), (source,) = CostModel(fit).price_works([huge])
    assert source == "extrapolated"
    assert sigma > 0.9
    assert seconds == pytest.approx(floor_seconds(huge, fit, FLAT), rel=0.1)


def test_where_an_op_stands_does_not_put_it_out_of_range() -> None:
    fit = device({"matmul": family([matmul(64)], [math.log(3.0)], FLAT)})
    known = matmul(64)
    far = replace(known, sizes=(*known.sizes[:-4], 1e12, 500.0, 1e9, 1e9))
    assert CostModel(fit).price_works([far])[2] == ["calibrated"]
    larger = replace(known, sizes=(1, 4096, *known.sizes[2:]))
    assert CostModel(fit).price_works([larger])[2] == ["extrapolated"]


def test_prices_come_back_in_the_order_asked() -> None:
    other = Work("elementwise", "aten::add", "float32", 10.0, 120.0, (10, 120, 10, 10, 1e6, 1, 0, 0), (0,) * 8)
    fit = device({"matmul": family([matmul(64)], [math.log(2.0)], FLAT)})
    seconds, _, sources = CostModel(fit).price_works([other, matmul(64), other])
    assert sources == ["floor", "calibrated", "floor"]
    assert seconds[0] == seconds[2] == pytest.approx(roofline_seconds(other, fit))
    assert seconds[1] == pytest.approx(2 * floor_seconds(matmul(64), fit, FLAT), rel=1e-3)


def call(op: str, *shape: int, phase: str = "forward", layer: str = "") -> OpCall:
    spec = TensorSpec(shape, (shape[-1], 1), "float32")
    return OpCall(op, (spec, spec), (spec,), phase=phase, layer=layer)  # type: ignore[arg-type]


def test_a_trace_is_priced_call_by_call() -> None:
    calls = (call("aten::mm", 64, 64, layer="a"), call("aten::add", 64, 64), call("aten::mm", 64, 64, layer="b"))
    trace = Trace(calls, "train", (), (), (), ())
    priced = CostModel(device()).price(trace)
    assert priced.trace is trace
    assert priced.families == ("matmul", "elementwise", "matmul")
    assert priced.seconds[0] == priced.seconds[2] != priced.seconds[1]
    assert priced.host_seconds == (0.0, 0.0, 0.0)


def test_the_host_time_of_an_op_or_its_family_or_any() -> None:
    fit = replace(device(), device="cuda", framework={"host": 1e-6, "host/matmul": 2e-6, "host/aten::bmm": 3e-6})
    calls = (call("aten::add", 4, 4), call("aten::mm", 4, 4), call("aten::bmm", 4, 4))
    assert CostModel(fit).price(Trace(calls, "infer", (), (), (), ())).host_seconds == (1e-6, 2e-6, 3e-6)


def test_an_update_is_issued_for_all_its_tensors_at_once() -> None:
    known = {"host": 1e-6, "host/optimizer": 2e-6, "host_update/optimizer": 9e-5, "host_update/optimizer::SGD": 3e-5}
    fit = replace(device(), device="cuda", framework=known)
    for name, whole in (("Adam", 9e-5), ("SGD", 3e-5)):
        calls = (*(call(f"optimizer::{name}", 4, 4, phase="optimizer") for _ in range(30)), call("aten::mm", 4, 4))
        *updates, product = CostModel(fit).price(Trace(calls, "train", (), (), (), ())).host_seconds
        assert updates == [pytest.approx(whole / 30 + 2e-6)] * 30
        assert product == 1e-6


def test_a_fit_of_other_features_is_refused() -> None:
    other = replace(family([matmul(64)], [0.0], FLAT), feature_names=("flops", "bytes", "m"))
    with pytest.raises(ProfileError, match=r"another version of placer \(features of 'matmul' differ\).*calibrate"):
        CostModel(device({"matmul": other}))
    with pytest.raises(ProfileError, match="calibrate"):
        CostModel(device({"no such family": other}))


def test_fresh_pages_cost_the_op_that_writes_them_first() -> None:
    nbytes = 100 << 20
    calls = (call("aten::add", nbytes // 4, 1), call("aten::add", 64, 64))
    trace = Trace(calls, "infer", (), (), (), (), memory=(MemoryEvent(0, 1, nbytes), MemoryEvent(1, 1, 0)))
    model = CostModel(device(fresh_seconds_per_byte=1e-9))
    settled, unknown = model.price(trace, SETTLED).seconds, model.price(trace).seconds
    assert settled[0] - unknown[0] == pytest.approx(nbytes * 1e-9, rel=1e-3)
    assert settled[1] == unknown[1]


def test_in_place_is_not_another_op() -> None:
    assert op_label(matmul(4, op="aten::add_")) == op_label(matmul(4, op="aten::add"))
