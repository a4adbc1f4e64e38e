"""Floors of an accelerator: one cost for a FLOP in all dtypes, and no amounts of a CPU's caches and registers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from placer.calibration.fitting import device as device_fitting
from placer.calibration.fitting.accelerator import fit_accelerator
from placer.calibration.fitting.family import ops_by_family
from placer.calibration.fitting.floors import fit_floor
from placer.pricing.describe import PLACE, feature_names, op_label
from placer.pricing.families import FAMILIES
from placer.pricing.floors import floor_seconds
from placer.pricing.work import Work
from placer.profile.profile import DeviceFit

from .made_up import RATES as MADE_UP
from .made_up import steps

RATES = {
    "dispatch_seconds": 2e-6, "bytes_per_second": 1e12,
    "flops/float32": 2e13, "flops/tf32": 8e13, "flops/bfloat16": 16e13, "flops/float16": 16e13,
}  # fmt: skip
GPU = DeviceFit("cuda", 1, RATES, {}, {}, {})
LATENCY = 4e-6


def products(count: int, dtype: str, seed: int = 0, op: str = "aten::mm", family: str = "matmul") -> list[Work]:
    random = np.random.default_rng(seed)
    sizes, flags = len(FAMILIES[family].sizes) + 4, len(FAMILIES[family].flags) + 5
    size = 4 if dtype == "float32" else 2
    return [
        Work(family, op, dtype, 2 * m * k * n, size * (m * k + k * n + m * n), (1.0, m, n, k, *(1.0,) * (sizes - 4)),
             (0.0,) * flags)
        for m, k, n in np.exp(random.uniform(np.log(64), np.log(8192), (count, 3))).tolist()
    ]  # fmt: skip


def seconds(works: list[Work], rate: float) -> list[float]:
    return [LATENCY + work.flops / (0.8 * rate) + work.bytes / 1e12 for work in works]


def test_one_cost_serves_all_dtypes_sampled_or_not() -> None:
    plain, narrow = products(60, "float32"), products(60, "bfloat16", 1)
    taken = [*seconds(plain, RATES["flops/float32"]), *seconds(narrow, RATES["flops/bfloat16"])]
    costs = fit_floor([*plain, *narrow], np.array(taken), RATES, cpu=False)
    for dtype in ("float32", "bfloat16", "float16"):  # the last was not sampled
        fresh = products(30, dtype, 7)
        found = [floor_seconds(work, GPU, costs) for work in fresh]
        assert found == pytest.approx(seconds(fresh, RATES[f"flops/{dtype}"]), rel=0.15), dtype


def test_a_half_that_no_sample_showed_runs_at_its_own_peak() -> None:
    plain = products(60, "float32")
    costs = fit_floor(plain, np.array(seconds(plain, RATES["flops/float32"])), RATES, cpu=False)
    large = replace(products(1, "bfloat16")[0], flops=1e13, bytes=1e8)
    assert floor_seconds(large, GPU, costs) == pytest.approx(1e13 / (0.8 * 16e13), rel=0.15)


def test_convolutions_are_not_held_above_what_tf32_allows() -> None:
    """Samples that run four times as fast as float32 products are believed, and TF32 switched off costs as much."""
    image = products(80, "float32", 2, "aten::convolution", "convolution")
    taken = np.array(seconds(image, RATES["flops/tf32"]))
    costs = fit_floor(image, taken, RATES, cpu=False)
    fresh = [replace(work, flops=1e13) for work in products(5, "float32", 3, "aten::convolution", "convolution")]
    fast = [floor_seconds(work, GPU, costs) for work in fresh]
    assert fast == pytest.approx(seconds(fresh, RATES["flops/tf32"]), rel=0.2)
    torch.backends.cudnn.allow_tf32 = False
    try:
        slow = [floor_seconds(work, GPU, costs) for work in fresh]
    finally:
        torch.backends.cudnn.allow_tf32 = True
    assert slow == pytest.approx(seconds(fresh, RATES["flops/float32"]), rel=0.2)


@pytest.mark.parametrize("family", ["matmul", "convolution", "elementwise", "reduction", "attention", "recurrent"])
def test_what_only_cpus_spend_time_on_is_not_fitted(family: str) -> None:
    works = products(20, "float32", 4, "aten::op", family)
    described = FAMILIES[family]
    busiest = described.sharing.busiest if described.sharing is not None else {}
    names = {name.partition("@")[0] for name in fit_floor(works, np.full(20, LATENCY), RATES, cpu=False)}
    assert not names & {*described.cpu_amounts, *busiest, *PLACE}
    assert names >= {"latency", "flops", "bytes"}


def test_samples_of_an_accelerator_are_those_its_kernels_see() -> None:
    (step,) = steps(1, 3)
    one = step.ops[0]
    flags = list(one.features)
    flags[-1] = 1.0  # the first of its name in the step
    odd = replace(one, op=f"{one.op}.number", dtype="float32+bool", features=tuple(flags))
    for device, changed in (("cpu", False), ("cuda", True)):
        ((found,),) = ops_by_family([replace(step, device=device, ops=(odd,))]).values()
        label = op_label(found.op.work())
        assert (label == one.op) is changed
        assert (found.op.features[2 + feature_names(one.family).index("first")] == 0.0) is changed


def test_each_family_is_fitted_once_for_the_interval_and_once_for_good(monkeypatch: pytest.MonkeyPatch) -> None:
    fitted: list[int] = []
    real = device_fitting.fit_families

    def counted(measured, *others):  # type: ignore[no-untyped-def]
        fitted.append(sum(len(ops) for ops in measured.values()))
        return real(measured, *others)

    monkeypatch.setattr(device_fitting, "fit_families", counted)
    observed = [replace(step, device="cuda") for step in steps(40, 1)]
    fit = fit_accelerator(observed, MADE_UP, device="cuda", threads=1)
    assert len(fitted) == 2
    assert fitted[0] < fitted[1]
    assert fit.families
