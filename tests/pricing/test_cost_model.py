"""Prices: floor and residual, by op and by trace, and what they rest on."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from priced import FLAT, call, device, family, matmul

from placer.errors import ProfileError
from placer.pricing.cost_model import FLOOR_SIGMA, CostModel
from placer.pricing.describe import fitted_features, on_accelerator, op_label
from placer.pricing.floors import (
    ARITHMETIC_BY_FLOOR,
    LEAST_SHARE,
    LOOPS_BY_FLOOR,
    PUBLISHED,
    floor_parts,
    floor_seconds,
    roofline_seconds,
)
from placer.pricing.gpu import edition
from placer.pricing.work import SUFFIX, Work
from placer.tracing.trace_data import Trace


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


def test_a_trace_is_priced_call_by_call() -> None:
    calls = (call("aten::mm", 64, 64, layer="a"), call("aten::add", 64, 64), call("aten::mm", 64, 64, layer="b"))
    trace = Trace(calls, "train", (), (), (), ())
    priced = CostModel(device()).price(trace)
    assert priced.trace is trace
    assert priced.families == ("matmul", "elementwise", "matmul")
    assert priced.seconds[0] == priced.seconds[2] != priced.seconds[1]
    assert priced.host_seconds == (0.0, 0.0, 0.0)


@pytest.mark.parametrize("missing", ["dispatch_seconds", "flops/float32", "bytes_per_second"])
def test_a_fit_without_a_floor_is_refused(missing: str) -> None:
    fit = device()
    for rates in ({k: v for k, v in fit.rates.items() if k != missing}, {**fit.rates, missing: 0.0}):
        with pytest.raises(ProfileError, match=rf"cannot price on cpu: it has no {missing}; run: placer calibrate"):
            CostModel(replace(fit, rates=rates))
    nothing = family([matmul(64)], [0.0], {"flops": 1.0})
    with pytest.raises(ProfileError, match="it has no latency of matmul; run"):
        CostModel(device({"matmul": nothing}))


def test_a_fit_over_other_published_prices_is_refused() -> None:
    """The residual of a calibrated GPU is learnt over what is published of it, in this edition."""
    gpu = replace(device(), device="cuda", gpu="Tesla T4")

    def built_on(edition: float, **values: str) -> CostModel:
        learnt = family([on_accelerator(matmul(64))], [math.log(2.0)], {**FLAT, PUBLISHED: edition})
        return CostModel(replace(gpu, families={"matmul": learnt}, **values))

    now = built_on(edition())
    (plain,) = CostModel(gpu).price_works([matmul(64)])[0]
    assert now.price_works([matmul(64)])[0] == [pytest.approx(2 * plain, rel=1e-3)]
    assert now.provenance == "calibrated"
    for refused in (lambda: built_on(edition() + 1.0), lambda: built_on(edition(), gpu="")):
        with pytest.raises(ProfileError, match="other published times"):
            refused()


def test_a_fit_of_other_features_is_refused() -> None:
    other = replace(family([matmul(64)], [0.0], FLAT), feature_names=("flops", "bytes", "m"))
    with pytest.raises(ProfileError, match=r"another version of placer \(features of 'matmul' differ\).*calibrate"):
        CostModel(device({"matmul": other}))
    with pytest.raises(ProfileError, match="calibrate"):
        CostModel(device({"no such family": other}))
