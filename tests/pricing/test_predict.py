"""Predictions: the framework's share, bounds, intervals, one-time costs, memory and power."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from described import spec
from torch import nn

from placer import machine
from placer import profile as profiles
from placer.calibration.benchmarks.probe import Apply
from placer.errors import ProfileError
from placer.pricing import (
    Residence,
    compute_parts,
    gpu_profile,
    step_bounds,
)
from placer.pricing.predict import (
    ALLOCATOR_SHARE,
    CONTEXT_BYTES,
    CPU_FULL,
    CPU_IDLE,
    GPU_IDLE,
    Z90,
    available_bytes,
    log_sigma,
    memory_elsewhere,
    needed_bytes,
    one_time_parts,
    predict,
    step_watts,
)
from placer.profile import Device, Profile
from placer.tracing import trace, trace_here
from placer.tracing.trace_data import OpCall, TensorSpec, Trace
from placer.workload import make_workload

# --- what bounds ops and steps ------------------------------------------------------------------------------------


def with_rates(profile: Profile, **rates: float) -> Profile:
    """With two threads on the CPU, however many this process has, and these rates of the accelerator."""
    cpu, cuda = profile.fits
    return replace(profile, fits=(replace(cpu, threads=2), replace(cuda, rates={**cuda.rates, **rates})))


OUT = {"copy/d2h/pageable/bytes_per_second": 1e13}


@pytest.mark.parametrize(
    ("device", "model", "shape", "mode", "rates", "expected"),
    [
        ("cuda", nn.Linear(8, 8), (4, 8), "train", {}, "launches"),  # the host needs 10 µs an op, the device 2
        ("cuda", nn.Linear(4, 4096), (8192, 4), "infer", {}, "transfer"),  # 134 MB at 5 GB/s
        ("cuda", nn.Linear(4096, 4096), (4096, 4096), "infer", OUT, "arithmetic"),
        ("cuda", nn.ReLU(), (65536, 4096), "infer", OUT, "memory"),
        ("cuda", Apply(lambda x: x * float(x.sum())), (8, 8), "infer", {"sync_seconds": 1.0}, "waits"),
        # A late host bounds the step however busy the device, also where the kernels are bound by memory.
        ("cuda", nn.Linear(8, 8), (4, 8), "train", {"dispatch_seconds": 8e-6}, "launches"),
        ("cpu", nn.Linear(2, 2), (1, 2), "train", {}, "launches"),
        ("cpu", nn.Linear(1024, 1024), (1024, 1024), "train", {}, "arithmetic"),
        ("cpu", nn.ReLU(), (4096, 4096), "infer", {}, "memory"),
    ],
)
def test_a_step_is_bounded_by(
    handmade_profile: Profile,
    device: str,
    model: nn.Module,
    shape: tuple[int, ...],
    mode: str,
    rates: dict[str, float],
    expected: str,
) -> None:
    step = trace_here(make_workload(model.to("meta"), shape, mode=mode, data="device"))
    profile = with_rates(handmade_profile, **rates)
    found = predict(step, profile, devices=(device,), threads=2, data="device", outputs="host")[device]
    fit = profile.fit(device)
    assert found.bounded_by == expected
    bounds = step_bounds(found.priced, found.components, fit)
    assert sum(bounds.values()) == pytest.approx(found.step_seconds)
    parts = compute_parts(found.priced, fit)
    assert sum(parts.values()) == pytest.approx(found.components["compute"])
    assert (parts["optimizer"] > 0.0) == (mode == "train")


# --- predictions --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def traced() -> Trace:
    return trace(make_workload(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2)), (4, 8), mode="train"))


def test_a_prediction_per_device_in_the_order_asked(traced: Trace, handmade_profile: Profile) -> None:
    found = predict(traced, handmade_profile, devices=("cuda", "cpu"), steps=1000)
    assert list(found) == ["cuda", "cpu"]
    for name, prediction in found.items():
        assert 0.0 < prediction.low < prediction.step_seconds < prediction.high
        assert sum(prediction.components.values()) == pytest.approx(prediction.step_seconds)
        assert prediction.device == prediction.priced.device == name
        assert prediction.components["compute"] == pytest.approx(sum(prediction.priced.seconds))
        assert prediction.total_seconds == pytest.approx(prediction.one_time_seconds + 1000 * prediction.step_seconds)
        sigma = log_sigma(prediction.priced, handmade_profile.fit(name), prediction.step_seconds)
        assert prediction.high / prediction.step_seconds == pytest.approx(math.exp(Z90 * sigma))
        assert prediction.low * prediction.high == pytest.approx(prediction.step_seconds**2)
    assert found["cpu"].peak_memory_bytes == traced.peak_bytes
    with pytest.raises(ProfileError, match="mps"):
        predict(traced, handmade_profile, devices=("mps",))


def test_one_time_costs_are_what_is_still_to_be_paid(
    traced: Trace, handmade_profile: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    def once(device: str, **residence: Any) -> float:
        fit = handmade_profile.fit(device)
        return sum(one_time_parts(traced, handmade_profile, fit, device, Residence(**residence)).values())

    move = len(traced.parameters) * 1e-5 + sum(p.stored_bytes for p in traced.parameters) / 5e9
    first_calls = len({call.op for call in traced.calls}) * 1e-3
    assert once("cpu") == 0.0
    assert once("cuda") == pytest.approx(1.0 + move + first_calls)
    monkeypatch.setattr(machine, "has_context", lambda device: True)
    assert once("cuda") == pytest.approx(move + first_calls)
    assert once("cuda", home="cuda") == pytest.approx(first_calls)
    assert once("cpu", home="cuda") == pytest.approx(move)  # the way back costs the same
    assert once("cuda", here=False, home="cuda") == pytest.approx(1.0 + move + first_calls)
    assert once("cpu", here=False, home="cuda") == 0.0


@pytest.mark.parametrize(
    "rates",
    [
        {"dispatch_seconds": 1e12},
        {"dispatch_seconds": math.inf},
        {"flops/float32": 1e-300},
        {"bytes_per_second": 1e-290},
    ],
)
def test_times_that_make_no_sense_are_the_profiles_fault(
    traced: Trace, handmade_profile: Profile, rates: dict[str, float]
) -> None:
    with pytest.raises(ProfileError, match=r"numbers of profile .* for cuda make no sense"):
        predict(traced, with_rates(handmade_profile, **rates), devices=("cuda",))


def test_power_is_that_of_the_busy_threads_and_of_a_gpu_while_it_computes(handmade_profile: Profile) -> None:
    cpu, _ = handmade_profile.fits
    facts = {**handmade_profile.fingerprint, "cores": 4}
    host = replace(handmade_profile, fits=(cpu,), fingerprint=facts)
    one, two = (step_watts(host, cpu, {}, 1.0, threads) for threads in (1, 2))
    assert one == pytest.approx(4 * CPU_IDLE + CPU_FULL - CPU_IDLE)
    assert two == pytest.approx(4 * CPU_IDLE + 2 * (CPU_FULL - CPU_IDLE))
    t4 = gpu_profile("T4", host)
    (fit,) = t4.fits
    for share, drawn in ((0.0, 70.0 * GPU_IDLE), (1.0, 70.0), (2.0, 70.0)):
        assert step_watts(t4, fit, {"compute": share}, 1.0, 1) == pytest.approx(one + drawn)
    unknown = (gpu_profile("T4"), fit), (t4, replace(fit, gpu="")), (t4, replace(fit, gpu="no such GPU"))
    assert [step_watts(profile, each, {}, 1.0, 1) for profile, each in unknown] == [None] * 3


def test_a_device_is_priced_by_the_trace_of_its_kind(handmade_profile: Profile) -> None:
    def region(x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            return x @ x

    step = trace(make_workload(Apply(region), (64, 64), mode="infer"))
    found = predict(step, handmade_profile, devices=("cpu", "cuda"))
    assert found["cuda"].priced.trace is step.on("cuda")
    dtypes = {name: {w.dtype for w in p.priced.works if w.family == "matmul"} for name, p in found.items()}
    assert dtypes == {"cpu": {"float32"}, "cuda": {"bfloat16"}}


# --- what a step needs of a device's memory, and what it could have -------------------------------------------------

CONTEXT = CONTEXT_BYTES["cuda"]
GB = 10**9


@pytest.mark.parametrize(
    ("optimizer", "settings", "copies"),
    [
        (torch.optim.Adam, {}, 1),
        (torch.optim.Adam, {"fused": True}, 0),
        (torch.optim.Adam, {"foreach": False}, 0),
        (torch.optim.SGD, {"lr": 0.1}, 0),
        (torch.optim.SGD, {"lr": 0.1, "weight_decay": 0.1}, 1),
    ],
)
def test_an_update_of_all_tensors_at_once_takes_a_copy_of_them(
    optimizer: Any, settings: dict[str, Any], copies: int
) -> None:
    model = nn.Linear(1000, 1000, bias=False)
    step = trace(make_workload(model, (1, 1000), mode="train", optimizer=optimizer(model.parameters(), **settings)))
    step = replace(step.on("cuda"), peak_activation_bytes=0)
    assert needed_bytes(step, "cpu") == step.peak_bytes
    expected = (step.peak_bytes + copies * step.parameter_bytes) * (1 + ALLOCATOR_SHARE)
    assert needed_bytes(step, "cuda") == pytest.approx(expected)
    # By then the activations are gone: whichever is larger counts.
    larger = replace(step, peak_activation_bytes=2 * step.parameter_bytes)
    assert needed_bytes(larger, "cuda") == pytest.approx(larger.peak_bytes * (1 + ALLOCATOR_SHARE))


@pytest.fixture
def fit(monkeypatch: pytest.MonkeyPatch) -> Device:
    """A GPU of 16 GB, 10 of them free, that this process does not use."""
    monkeypatch.setattr(machine, "available_devices", lambda: ("cpu", "cuda", "cuda:1"))
    monkeypatch.setattr(machine, "known_free_memory", lambda device: 10 * GB)
    monkeypatch.setattr(machine, "has_context", lambda device: False)
    return Device("cuda", 1, {"memory_bytes": 16.0 * GB}, {}, {}, {})


def test_what_the_workload_holds_already_is_not_needed_again(fit: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "has_context", lambda device: True)
    assert available_bytes("cuda", fit, Residence()) == 10 * GB
    there = Residence(home="cuda", held={"cuda": 4 * GB})
    assert available_bytes("cuda", fit, there) == 14 * GB
    assert available_bytes("cuda:1", fit, there) == 10 * GB
    cpu = Device("cpu", 2, {}, {}, {}, {})
    assert available_bytes("cpu", cpu, Residence(held={"cpu": 2 * GB})) == 12 * GB


def test_where_only_a_context_could_tell_and_elsewhere_it_is_all_of_the_memory(
    fit: Device, handmade_profile: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "known_free_memory", lambda device: None)
    assert available_bytes("cuda", fit, Residence()) == 16 * GB - CONTEXT
    assert available_bytes("cuda", replace(fit, rates={}), Residence()) is None
    assert available_bytes("xpu", fit, Residence()) is None
    there = replace(handmade_profile, fingerprint={"accelerators": [{"device": "cuda", "memory_bytes": 8 * GB}]})
    assert memory_elsewhere(there, fit) == 8 * GB - CONTEXT
    assert memory_elsewhere(there, replace(fit, gpu="Tesla T4")) == 8 * GB  # the catalog has taken it off
    assert memory_elsewhere(there, replace(fit, device="xpu")) is None


# --- prices that do not change by themselves ----------------------------------------------------------------------


def golden() -> Trace:
    """A step of an op of most families, described by hand: the same whatever torch traces."""
    image, weight, half = spec(8, 16, 24, 24), spec(32, 16, 3, 3), spec(8, 32, 22, 22)
    rows, numbers = spec(512, 96), spec(512, dtype="int64")
    q = spec(8, 4, 64, 32)
    calls: list[tuple[str, list[TensorSpec], list[TensorSpec], tuple[Any, ...], str]] = [
        ("convolution", [image, weight], [half], ((1, 1), (0, 0), (1, 1), False, (0, 0), 1), "forward"),
        ("native_batch_norm", [half, spec(32), spec(32)], [half], (True,), "forward"),
        ("gelu", [half], [half], (), "forward"),
        ("max_pool2d_with_indices", [half], [spec(8, 32, 11, 11)], (), "forward"),
        ("embedding", [spec(1000, 96), numbers], [rows], (), "forward"),
        ("addmm", [spec(288), rows, spec(96, 288)], [spec(512, 288)], (), "forward"),
        ("scaled_dot_product_attention", [q, q, q], [q], (False, False, 0.0, False), "forward"),
        ("lstm", [spec(20, 8, 96), spec(256, 96), spec(256, 64)], [spec(20, 8, 64)], (20,), "forward"),
        ("_softmax", [rows], [rows], (-1, False), "forward"),
        ("sum", [spec(512, 31)], [spec(31)], (0,), "backward"),
        ("mm", [spec(96, 512, stride=(1, 96)), spec(512, 288)], [spec(96, 288)], (), "backward"),
        ("convolution_backward", [half, image, weight], [weight], ((1, 1), (0, 0), (1, 1), False), "backward"),
    ]
    found = [OpCall(f"aten::{op}", tuple(i), tuple(o), a, phase=p) for op, i, o, a, p in calls]  # type: ignore[arg-type]
    found += [OpCall("optimizer::Adam", (t,), (), phase="optimizer") for t in (weight, spec(96, 288))]
    return Trace(
        tuple(found),
        "train",
        (weight, spec(96, 288)),
        (),
        (image,),
        (half,),
        python_calls=30,
        evicted_calls=5.0,
        autograd_nodes=14,
        peak_activation_bytes=10**7,
    )


#: Seconds: the least, the likeliest and the most.
GOLDEN: dict[str, tuple[float, float, float]] = {
    "amd-epyc-2-core": (0.00312452715, 0.00384687037, 0.00473620837),
    "amd-epyc-avx512-2-core": (0.00233175648, 0.00278590122, 0.00332849749),
    "amd-epyc-avx512-2-core-busy": (0.00262865403, 0.00371051052, 0.00523761901),
    "intel-xeon-avx512-2-core": (0.00233251588, 0.00285413724, 0.00349240896),
    "Tesla T4": (0.00095439715, 0.00131260898, 0.00180526768),
    "NVIDIA A100-SXM4-80GB": (0.000870258818, 0.00130437114, 0.00195503228),
    "Apple M1 Pro": (0.00107149754, 0.00187355184, 0.00327597255),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_a_step_that_is_described_by_hand_costs_what_it_always_did(name: str) -> None:
    """Whoever changes a formula, a profile or the published numbers changes these too, and says so."""
    assert set(profiles.shipped()) < set(GOLDEN)
    profile = profiles.load(name) if name in profiles.shipped() else gpu_profile(name)
    (device,) = profile.devices()
    found = predict(golden(), profile, devices=(device,), threads=2)[device]
    assert (found.low, found.step_seconds, found.high) == pytest.approx(GOLDEN[name], rel=1e-6)
