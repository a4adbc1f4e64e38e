"""On a device whose rate depends on the dtype, ops cost what the dtype that they run in does."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
import torch
from simulated.clock import VirtualClock
from simulated.device import DEVICE, SimulatedDevice, machine_with
from simulated.spec import SPEC
from torch import nn

from placer.calibration import plan
from placer.calibration.runner import calibrate
from placer.pricing import CostModel
from placer.profile.profile import Device, Profile
from placer.tracing import trace
from placer.workload import make_workload

#: So slow in float32 that products of 1024 rows show its rate in any dtype.
FLOPS = SPEC.flops / 10
FAST = replace(
    SPEC, flops=FLOPS, flops_tf32=4 * FLOPS, flops_bfloat16=8 * FLOPS, flops_float16=8 * FLOPS, flops_float64=FLOPS / 4
)
FAMILIES = {"network": 1.0, "matmul": 6.0, "convolution": 6.0}


@pytest.fixture(scope="module")
def calibrated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Profile, SimulatedDevice]]:
    """A short calibration of the device, and the device."""
    path = tmp_path_factory.mktemp("calibrated") / "profile.json"
    few = {name: (plan.PROPOSERS[name][0], weight) for name, weight in FAMILIES.items()}
    with DEVICE.on(VirtualClock()) as clock, machine_with(FAST) as (device,), pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "PROPOSERS", few)
        yield calibrate(budget=0.8, devices=("sim",), path=path, progress=False, clock=clock), device


@contextlib.contextmanager
def tf32(products: bool, convolutions: bool) -> Iterator[None]:
    torch.set_float32_matmul_precision("high" if products else "highest")
    torch.backends.cudnn.allow_tf32 = convolutions
    try:
        yield
    finally:
        torch.set_float32_matmul_precision("highest")
        torch.backends.cudnn.allow_tf32 = True


def priced(fit: Device, model: nn.Module, x: torch.Tensor) -> float:
    traced = trace(make_workload(model, batch=x, mode="infer", data="device"))
    return sum(CostModel(fit).price(traced).seconds)


def taken(device: SimulatedDevice, model: nn.Module, x: torch.Tensor) -> float:
    """Seconds of the kernels alone."""
    module, there = model.to("sim"), x.to("sim")

    def step() -> None:
        with torch.no_grad():
            module(there)
        device.synchronize()

    step()
    start = device.clock.now
    step()
    seconds = device.clock.now - start
    model.to("cpu")
    return seconds - SPEC.issue - SPEC.launch - SPEC.sync


def test_every_dtype_has_its_rate(calibrated: tuple[Profile, SimulatedDevice]) -> None:
    rates = calibrated[0].fit("sim").rates
    assert {name: rates[f"flops/{name}"] / FLOPS for name in ("float32", "tf32", "bfloat16", "float16")} == {
        "float32": pytest.approx(1.0, rel=0.1),
        "tf32": pytest.approx(4.0, rel=0.1),
        "bfloat16": pytest.approx(8.0, rel=0.1),
        "float16": pytest.approx(8.0, rel=0.1),
    }


LARGE: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "product": (lambda: nn.Linear(768, 768), (1024, 768)),
    "convolution": (lambda: nn.Conv2d(64, 96, 3, padding=1), (8, 64, 32, 32)),
}


@pytest.mark.parametrize("kind", LARGE)
@pytest.mark.parametrize(("dtype", "allowed"), [(torch.float32, False), (torch.float32, True), (torch.bfloat16, True)])
def test_what_is_predicted_is_what_the_device_takes(
    kind: str, dtype: torch.dtype, allowed: bool, calibrated: tuple[Profile, SimulatedDevice]
) -> None:
    profile, device = calibrated
    build, shape = LARGE[kind]
    model, x = build().to(dtype), torch.randn(shape).to(dtype)
    with tf32(products=allowed, convolutions=allowed):
        assert priced(profile.fit("sim"), model, x) == pytest.approx(taken(device, model, x), rel=0.25)
