"""The fitted floor recovers known costs, also from disturbed samples."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from placer.calibration.fitting.floors import fit_floor
from placer.pricing.families.family import GRAIN
from placer.pricing.floors import floor_seconds
from placer.pricing.work import Work
from placer.profile.profile import DeviceFit

RATES = {"dispatch_seconds": 1e-7, "flops/float32": 1e11, "bytes_per_second": 1e11}
LATENCY, PER_BYTE = 3e-6, 2e-10
Array = np.ndarray[tuple[int, ...], np.dtype[np.float64]]


def copies(n: int, seed: int = 0, op: str = "aten::add") -> list[Work]:
    sizes = np.exp(np.random.default_rng(seed).uniform(np.log(16), np.log(1 << 22), n))
    return [Work("elementwise", op, "float32", s, 12 * s, (s, 12 * s, s, 1e6, 1, 0), (0,) * 7) for s in sizes]


def products(n: int, seed: int = 0, op: str = "aten::mm") -> list[Work]:
    random = np.random.default_rng(seed)
    shapes = np.exp(random.uniform(np.log(4), np.log(2048), (n, 3)))
    return [
        Work("matmul", op, "float32", 2 * a * b * c, 4 * (a * b + b * c + a * c), (1, a, b, c, 1e6, 1, 0), (0, 0, 0, 0))
        for a, b, c in shapes.tolist()
    ]


def price(works: list[Work], costs: dict[str, float], threads: int = 1) -> Array:
    fit = DeviceFit("cpu", threads, RATES, {}, {}, {})
    return np.array([floor_seconds(work, fit, costs) for work in works])


def true_seconds(works: list[Work], *, latency: float = LATENCY, per_flop: float = 0.0) -> Array:
    return np.array([latency + per_flop * w.flops + PER_BYTE * w.bytes for w in works])


def disturbed(seconds: Array, seed: int = 1) -> Array:
    """3 % of noise, and 5 % of the samples a hundred times too short or ten times too long."""
    random = np.random.default_rng(seed)
    factor = np.exp(random.normal(0, 0.03, len(seconds)))
    chosen = random.choice(len(seconds), max(len(seconds) // 20, 1), replace=False)
    factor[chosen] = random.choice([0.01, 10.0], len(chosen))
    return seconds * factor


def test_costs_of_clean_samples_are_recovered() -> None:
    works = copies(80)
    costs = fit_floor(works, true_seconds(works), RATES)
    assert costs["latency"] == pytest.approx(LATENCY, rel=0.02)
    assert costs["bytes"] + costs["flops"] / 12 == pytest.approx(PER_BYTE, rel=0.02)  # one FLOP for every 12 bytes
    assert not any(name.startswith(("core", "chunk")) for name in costs)


def test_small_loops_on_one_core_and_large_ones_on_many() -> None:
    works = copies(200)
    numel = np.array([work.sizes[0] for work in works])
    shared = LATENCY + PER_BYTE * 12 * numel / np.minimum(np.ceil(numel / GRAIN), 8)  # eight cores
    costs = fit_floor(works, shared, RATES, threads=8)
    alone = fit_floor(works, shared, RATES)
    errors = [float(np.mean(np.abs(np.log(price(works, c, 8) / shared)))) for c in (costs, alone)]
    assert errors[0] < 0.1
    assert errors[0] < 0.5 * errors[1]


@pytest.mark.parametrize("seed", range(4))
def test_outliers_do_not_bend_the_fit(seed: int) -> None:
    works = copies(120, seed)
    costs = fit_floor(works, disturbed(true_seconds(works), seed), RATES)
    assert costs["latency"] == pytest.approx(LATENCY, rel=0.1)
    fresh = copies(50, seed + 100)
    assert price(fresh, costs) == pytest.approx(true_seconds(fresh), rel=0.1)


@pytest.mark.parametrize("seed", range(4))
def test_arithmetic_and_memory_are_told_apart(seed: int) -> None:
    # 30 % above what the measured peak allows at best: no shape is expected to be much worse once it is large.
    works = products(150, seed)
    costs = fit_floor(works, disturbed(true_seconds(works, per_flop=1.3e-11), seed), RATES)
    assert costs["flops"] == pytest.approx(1.3e-11, rel=0.15)
    fresh = products(50, seed + 100)
    error = np.abs(np.log(price(fresh, costs) / true_seconds(fresh, per_flop=1.3e-11)))
    assert np.median(error) < 0.05
    assert error.max() < 0.4


def test_every_cost_is_positive_or_zero() -> None:
    random = np.random.default_rng(2)
    works = products(40)
    costs = fit_floor(works, np.exp(random.uniform(-14, -4, 40)), RATES)  # seconds that nothing explains
    assert min(costs.values()) >= 0.0


def test_an_op_sampled_often_gets_costs_of_its_own() -> None:
    cheap, dear, rare = copies(40, 1), copies(40, 2, "aten::exp"), copies(3, 3, "aten::rare")
    seconds = np.concatenate([true_seconds(cheap), 5 * true_seconds(dear), true_seconds(rare)])
    costs = fit_floor([*cheap, *dear, *rare], seconds, RATES)
    assert costs["latency@aten::exp"] == pytest.approx(5 * LATENCY, rel=0.05)
    assert costs["latency@aten::add"] == pytest.approx(LATENCY, rel=0.05)
    assert price(rare, costs) == pytest.approx(true_seconds(rare), rel=0.5)  # few samples, so its siblings have a say


def test_small_products_alone_cannot_promise_more_than_the_peak() -> None:
    """Latency hides the arithmetic of tiny samples; a large shape must still cost its arithmetic."""
    random = np.random.default_rng(4)
    tiny = [
        Work("matmul", "aten::mm", "float32", 2 * n**3, 12 * n * n, (1, n, n, n, 1e6), (0, 0, 0, 0))
        for n in random.integers(2, 8, 30).astype(float).tolist()
    ]
    costs = fit_floor(tiny, np.full(30, LATENCY), RATES)
    huge = Work("matmul", "aten::mm", "float32", 2e12, 1e6, (1, 1e4, 1e4, 1e4, 1e6), (0, 0, 0, 0))
    assert price([huge], costs)[0] > 0.5 * 2e12 / 1e11


def test_another_machines_costs_hold_what_the_samples_say_nothing_of() -> None:
    tiny = [replace(work, bytes=work.bytes / work.sizes[0]) for work in copies(30)]  # of a few bytes, all of them
    known = {"latency": LATENCY / 2, "bytes": 3 * PER_BYTE, "bytes@aten::add": 3 * PER_BYTE, "bytes@aten::rare": 7e-9}
    costs = fit_floor(tiny, np.full(30, LATENCY), RATES, expected=known)
    assert costs["latency@aten::add"] == pytest.approx(LATENCY, rel=0.1)
    assert costs["bytes@aten::add"] == pytest.approx(3 * PER_BYTE, rel=0.1)
    assert costs["bytes@aten::rare"] == 7e-9
    works = copies(80)
    taught = fit_floor(works, true_seconds(works), RATES, expected=known)
    assert taught["latency"] == pytest.approx(LATENCY, rel=0.05)  # samples that say something are believed
