"""The fitted floor recovers known costs, also from disturbed samples and in dtypes that were not sampled."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from priced import elementwise, product

from placer.calibration.fitting.floors import fit_floor
from placer.pricing import Work
from placer.pricing.floors import floor_seconds
from placer.profile import DeviceFit

RATES = {"dispatch_seconds": 1e-7, "flops/float32": 1e11, "bytes_per_second": 1e11}
GPU_RATES = {
    "dispatch_seconds": 2e-6, "bytes_per_second": 1e12,
    "flops/float32": 2e13, "flops/tf32": 8e13, "flops/bfloat16": 16e13, "flops/float16": 16e13,
}  # fmt: skip
LATENCY, PER_BYTE = 3e-6, 2e-10
Array = np.ndarray[tuple[int, ...], np.dtype[np.float64]]


def copies(n: int, seed: int = 0, op: str = "aten::add") -> list[Work]:
    sizes = np.exp(np.random.default_rng(seed).uniform(np.log(16), np.log(1 << 22), n)).tolist()
    return [elementwise(op, s, 12 * s) for s in sizes]


def products(n: int, seed: int = 0, *, most: int = 2048, dtype: str = "float32", size: int = 4) -> list[Work]:
    shapes = np.exp(np.random.default_rng(seed).uniform(np.log(4), np.log(most), (n, 3))).tolist()
    return [product(m, n, k, dtype, item_bytes=size) for m, n, k in shapes]


def price(works: list[Work], costs: dict[str, float], threads: int = 1) -> Array:
    fit = DeviceFit("cpu", threads, RATES, {}, {}, {})
    return np.array([floor_seconds(work, fit, costs) for work in works])


def true_seconds(works: list[Work], per_flop: float = 0.0) -> Array:
    return np.array([LATENCY + per_flop * work.flops + PER_BYTE * work.bytes for work in works])


def disturbed(seconds: Array, seed: int = 1) -> Array:
    """3 % of noise, and 5 % of the samples a hundred times too short or ten times too long."""
    random = np.random.default_rng(seed)
    factor = np.exp(random.normal(0, 0.03, len(seconds)))
    chosen = random.choice(len(seconds), max(len(seconds) // 20, 1), replace=False)
    factor[chosen] = random.choice([0.01, 10.0], len(chosen))
    return seconds * factor


def test_costs_are_recovered_and_outliers_do_not_bend_them() -> None:
    works = copies(120)
    costs = fit_floor(works, true_seconds(works), RATES)
    assert costs["latency"] == pytest.approx(LATENCY, rel=0.02)
    assert costs["bytes"] + costs["flops"] / 12 == pytest.approx(PER_BYTE, rel=0.02)  # one FLOP for every 12 bytes
    assert not any(name.startswith(("core", "chunk")) for name in costs)
    bent = fit_floor(works, disturbed(true_seconds(works)), RATES)
    assert bent["latency"] == pytest.approx(LATENCY, rel=0.1)
    fresh = copies(50, 100)
    assert price(fresh, bent) == pytest.approx(true_seconds(fresh), rel=0.1)


def test_small_products_alone_cannot_promise_more_than_the_peak() -> None:
    """Latency hides the arithmetic of tiny samples; a large shape must still cost its arithmetic."""
    tiny = products(30, most=8)
    huge = replace(product(1e4, 1e4, 1e4), bytes=1e6)
    assert price([huge], fit_floor(tiny, np.full(30, LATENCY), RATES))[0] > 0.5 * 2e12 / 1e11


def test_another_machines_costs_hold_what_the_samples_say_nothing_of() -> None:
    tiny = [replace(work, bytes=work.bytes / work.flops) for work in copies(30)]  # of a few bytes, all of them
    known = {"latency": LATENCY / 2, "bytes": 3 * PER_BYTE, "bytes@aten::add": 3 * PER_BYTE, "bytes@aten::rare": 7e-9}
    costs = fit_floor(tiny, np.full(30, LATENCY), RATES, expected=known)
    assert costs["latency@aten::add"] == pytest.approx(LATENCY, rel=0.1)
    assert costs["bytes@aten::add"] == pytest.approx(3 * PER_BYTE, rel=0.1)
    assert costs["bytes@aten::rare"] == 7e-9
    works = copies(80)
    taught = fit_floor(works, true_seconds(works), RATES, expected=known)
    assert taught["latency"] == pytest.approx(LATENCY, rel=0.05)  # samples that say something are believed


def on_gpu(works: list[Work], rate: float) -> Array:
    return np.array([LATENCY + work.flops / (0.8 * rate) + work.bytes / 1e12 for work in works])


def test_on_an_accelerator_one_cost_serves_all_dtypes_sampled_or_not() -> None:
    gpu = DeviceFit("cuda", 1, GPU_RATES, {}, {}, {})
    plain, narrow = products(60, most=8192), products(60, 1, most=8192, dtype="bfloat16", size=2)
    taken = np.concatenate([on_gpu(plain, 2e13), on_gpu(narrow, 16e13)])
    for sampled, seconds in (([*plain, *narrow], taken), (plain, taken[:60])):
        costs = fit_floor(sampled, seconds, GPU_RATES, cpu=False)
        for dtype, size in (("float32", 4), ("bfloat16", 2), ("float16", 2)):
            fresh = [work for work in products(90, 7, most=8192, dtype=dtype, size=size) if work.flops > 1e10]
            found = [floor_seconds(work, gpu, costs) for work in fresh]
            assert found == pytest.approx(on_gpu(fresh, GPU_RATES[f"flops/{dtype}"]), rel=0.2), dtype
