"""Predictions: intervals, one-time costs, first calls and power."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import nn

from placer import machine, tracing
from placer.errors import ProfileError
from placer.pricing import gpu_profile, timeline
from placer.pricing.cost_model import CostModel
from placer.pricing.device_memory import Residence
from placer.pricing.predict import (
    CPU_FULL,
    CPU_IDLE,
    GPU_IDLE,
    Z90,
    _check,
    cost_model,
    coverage,
    first_calls_seconds,
    libraries_seconds,
    log_sigma,
    one_time_parts,
    power_limit,
    predict,
    step_watts,
)
from placer.pricing.prediction import Prediction
from placer.profile.profile import DeviceFit, Profile
from placer.tracing import trace
from placer.tracing.trace_data import Trace
from placer.workload import make_workload


@pytest.fixture
def traced() -> Trace:
    return trace(make_workload(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2)), (4, 8), mode="train"))


def test_a_prediction_per_device_in_the_order_asked(traced: Trace, handmade_profile: Profile) -> None:
    found = predict(traced, handmade_profile, devices=("cuda", "cpu"), steps=1000)
    assert list(found) == ["cuda", "cpu"]
    for name, prediction in found.items():
        assert prediction.device == prediction.priced.device == name
        assert sum(prediction.components.values()) == pytest.approx(prediction.step_seconds)
        assert prediction.components["compute"] == pytest.approx(sum(prediction.priced.seconds))
        assert prediction.low < prediction.step_seconds < prediction.high
        assert prediction.total_seconds == pytest.approx(prediction.one_time_seconds + 1000 * prediction.step_seconds)
    assert found["cpu"].peak_memory_bytes == traced.peak_bytes


def test_the_step_is_the_timelines(traced: Trace, handmade_profile: Profile) -> None:
    fit = handmade_profile.fit("cuda")
    expected = timeline.on_accelerator(CostModel(fit).price(traced), fit, data="pinned")
    found = predict(traced, handmade_profile, devices=("cuda",), data="pinned")["cuda"]
    assert found.step_seconds == expected.seconds
    assert found.components == expected.components
    assert found.total_seconds is None


def one_time(traced: Trace, profile: Profile, device: str, residence: Residence) -> float:
    return sum(one_time_parts(traced, profile, profile.fit(device), device, residence).values())


def test_one_time_costs_are_what_is_still_to_be_paid(
    traced: Trace, handmade_profile: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = sum(p.stored_bytes for p in traced.parameters)
    move = len(traced.parameters) * 1e-5 + weights / 5e9
    first_calls = len({call.op for call in traced.calls}) * 1e-3
    on_cpu, on_cuda = Residence(home="cpu"), Residence(home="cuda")
    assert one_time(traced, handmade_profile, "cpu", on_cpu) == 0.0
    assert one_time(traced, handmade_profile, "cuda", on_cpu) == pytest.approx(1.0 + move + first_calls)
    monkeypatch.setattr(machine, "has_context", lambda device: True)
    assert one_time(traced, handmade_profile, "cuda", on_cpu) == pytest.approx(move + first_calls)
    assert one_time(traced, handmade_profile, "cuda", on_cuda) == pytest.approx(first_calls)
    assert one_time(traced, handmade_profile, "cpu", on_cuda) == pytest.approx(move)  # the way back costs the same
    elsewhere = Residence(here=False, home="cuda")
    assert one_time(traced, handmade_profile, "cuda", elsewhere) == pytest.approx(1.0 + move + first_calls)
    assert one_time(traced, handmade_profile, "cpu", elsewhere) == 0.0


def test_a_model_larger_than_free_memory_does_not_fit(
    traced: Trace, handmade_profile: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert predict(traced, handmade_profile, devices=("cpu",))["cpu"].fits
    monkeypatch.setattr(machine, "known_free_memory", lambda device: traced.peak_bytes - 1)
    assert not predict(traced, handmade_profile, devices=("cpu",))["cpu"].fits


def test_an_unknown_device_is_an_error(traced: Trace, handmade_profile: Profile) -> None:
    with pytest.raises(ProfileError, match="mps"):
        predict(traced, handmade_profile, devices=("mps",))


def test_cost_models_are_kept_and_the_nearest_thread_count_is_taken(handmade_profile: Profile) -> None:
    one = replace(handmade_profile.fit("cpu"), threads=1)
    eight = replace(handmade_profile.fit("cpu"), threads=8)
    profile = replace(handmade_profile, fits=(one, eight))
    assert cost_model(profile, "cpu", 7).fit is eight
    assert cost_model(profile, "cpu", 1) is cost_model(profile, "cpu", 1)
    torch.set_num_threads(1)
    assert cost_model(profile, "cpu", None).fit is one


def test_coverage_is_the_share_of_time_not_of_ops(make_prediction: Callable[..., Prediction]) -> None:
    sources = ("calibrated", "floor", "extrapolated", "calibrated", "floor")
    priced = make_prediction(compute=1.0, sources=sources).priced
    assert coverage(priced) == pytest.approx(0.4 + 0.3)  # conftest's weights: 0.4, 0.005, 0.1, 0.3, 0.195
    assert coverage(replace(priced, seconds=(0.0,) * 5)) == 1.0


def test_errors_add_up_within_a_family_and_as_squares_between(make_prediction: Callable[..., Prediction]) -> None:
    priced = make_prediction(compute=1.0).priced
    fit = DeviceFit("cpu", 2, {}, {}, {}, {"base": 0.03, "ops": 2.0})
    matmul, elementwise, optimizer = 0.1 * 0.8, 0.1 * 0.005, 0.1 * 0.195
    expected = math.hypot(0.03, 2.0 * math.sqrt(matmul**2 + elementwise**2 + optimizer**2))
    assert log_sigma(priced, fit, 1.0) == pytest.approx(expected)
    # The framework's own time dilutes what the ops are uncertain by.
    slower = replace(fit, framework={"step": 1.0})
    halved = pytest.approx(math.hypot(0.03, (expected**2 - 0.03**2) ** 0.5 / 2))
    assert log_sigma(priced, slower, 2.0) == halved
    # An accelerator's host works meanwhile: a step bound by the device is as unsure as its kernels, ...
    beside = replace(priced, device="cuda", host_seconds=(0.1,) * 5)
    assert log_sigma(beside, fit, 1.0) == pytest.approx(expected)
    # ... and one bound by the host the less, the longer the device waits.
    waiting = replace(priced, device="cuda", host_seconds=(0.4,) * 5)
    quartered = pytest.approx(math.hypot(0.03, (expected**2 - 0.03**2) ** 0.5 / 4))
    assert log_sigma(waiting, fit, 2.0) == quartered


def test_the_interval_is_symmetric_on_a_log_scale(traced: Trace, handmade_profile: Profile) -> None:
    found = predict(traced, handmade_profile, devices=("cpu",))["cpu"]
    sigma = log_sigma(found.priced, handmade_profile.fit("cpu"), found.step_seconds)
    assert found.high / found.step_seconds == pytest.approx(math.exp(Z90 * sigma))
    assert found.low * found.high == pytest.approx(found.step_seconds**2)


def test_a_step_without_ops() -> None:
    empty = Trace((), "infer", (), (), (), ())
    fit = DeviceFit("cpu", 1, {"dispatch_seconds": 1e-6, "flops/float32": 1.0, "bytes_per_second": 1.0}, {}, {}, {})
    priced = CostModel(fit).price(empty)
    assert coverage(priced) == 1.0
    assert log_sigma(priced, fit, 0.0) == 0.0


@pytest.mark.parametrize("wrong", [
    {"low": 0.0}, {"low": -1.0}, {"low": 2.0}, {"high": 0.5}, {"high": math.inf}, {"step_seconds": math.nan},
    {"step_seconds": 2e9, "high": 3e9}, {"total_seconds": math.inf},
])  # fmt: skip
def test_times_that_make_no_sense_are_the_profiles_fault(
    wrong: dict[str, float], make_prediction: Callable[..., Prediction], handmade_profile: Profile
) -> None:
    right = make_prediction("cuda", 1.0)
    _check(right, handmade_profile)
    with pytest.raises(ProfileError, match="numbers of profile in memory for cuda make no sense"):
        _check(replace(right, **wrong), handmade_profile)
    priced = replace(right.priced, seconds=(math.inf, *right.priced.seconds[1:]))
    with pytest.raises(ProfileError, match="make no sense"):
        _check(replace(right, priced=priced), handmade_profile)

RATES = {
    "first_call_seconds": 1e-3, "first_use/convolution": 0.8, "first_use/product": 0.2, "first_use/fourier": 0.3,
    "first_use/linear_algebra": 1.5, "first_use/shape": 0.01,
}  # fmt: skip


def test_libraries_are_those_that_the_ops_need() -> None:
    image = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.Conv2d(8, 8, 3, padding=1))
    step = trace(make_workload(image, (2, 3, 16, 16), mode="infer"))
    assert libraries_seconds(step, RATES) == pytest.approx(0.8)
    shapes = first_calls_seconds(step, RATES) - len({call.op for call in step.calls}) * 1e-3
    assert shapes == pytest.approx(3 * 0.01)
    dense = trace(make_workload(nn.Linear(8, 8), (4, 8), mode="infer"))
    assert libraries_seconds(dense, RATES) == pytest.approx(0.2)
    assert libraries_seconds(trace(make_workload(nn.LSTM(8, 8), (4, 2, 8))), RATES) >= 0.8


def test_a_profile_without_these_rates_knows_none() -> None:
    step = trace(make_workload(nn.Conv1d(3, 8, 3), (2, 3, 16), mode="infer"))
    assert (libraries_seconds(step, {}), first_calls_seconds(step, {})) == (0.0, 0.0)


@pytest.fixture
def host(handmade_profile: Profile) -> Profile:
    """A CPU of four hardware threads, calibrated with one and with two."""
    cpu, _ = handmade_profile.fits
    fits = (replace(cpu, threads=1), replace(cpu, threads=2))
    return replace(handmade_profile, fits=fits, fingerprint={**handmade_profile.fingerprint, "cores": 4})


def priced(profile: Profile, size: int, threads: int = 1) -> Prediction:
    net = nn.Sequential(nn.Linear(size, size, device="meta"), nn.ReLU(), nn.Linear(size, size, device="meta"))
    trace = tracing.trace(make_workload(net, (size, size), mode="train"))
    device = profile.devices()[0]
    return predict(trace, profile, devices=(device,), threads=threads, residence=Residence(here=False))[device]


def test_a_cpu_draws_more_with_more_threads(host: Profile) -> None:
    cores = host.fingerprint["cores"]
    one, two = priced(host, 64), priced(host, 64, threads=2)
    assert one.watts == pytest.approx(cores * CPU_IDLE + CPU_FULL - CPU_IDLE)
    assert two.watts == pytest.approx(one.watts + CPU_FULL - CPU_IDLE)


def test_a_gpu_draws_its_limit_where_it_is_busy_and_little_where_it_waits(host: Profile) -> None:
    t4 = gpu_profile("T4", host)
    beside = host.fingerprint["cores"] * CPU_IDLE + CPU_FULL - CPU_IDLE
    busy, idle = priced(t4, 4096).watts, priced(t4, 16).watts
    assert busy is not None
    assert idle is not None
    assert power_limit("Tesla T4") == 70.0
    assert 0.8 * 70.0 < busy - beside <= 70.0
    assert 70.0 * GPU_IDLE < idle - beside < 0.4 * 70.0


def test_what_is_not_known_is_not_made_up(host: Profile) -> None:
    t4 = gpu_profile("T4", host)
    fit, components = t4.fits[0], {"compute": 1e-3}
    assert step_watts(gpu_profile("T4"), fit, components, 2e-3, 1) is None  # of no host
    assert step_watts(t4, replace(fit, gpu=""), components, 2e-3, 1) is None
    assert step_watts(t4, replace(fit, gpu="no such GPU"), components, 2e-3, 1) is None
    assert step_watts(t4, fit, components, 0.0, 1) is None
    assert power_limit("") is None


class Region(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            return self.linear(x)


def test_a_device_is_priced_by_the_trace_of_its_kind(handmade_profile: Profile) -> None:
    traced = trace(make_workload(Region(), (8, 64), mode="infer"))
    predictions = predict(traced, handmade_profile, devices=("cpu", "cuda"))
    assert predictions["cpu"].priced.trace is traced
    assert predictions["cuda"].priced.trace is traced.on("cuda")
    dtypes = {name: {w.dtype for w in p.priced.works if w.op == "aten::addmm"} for name, p in predictions.items()}
    assert dtypes == {"cpu": {"float32"}, "cuda": {"bfloat16"}}
