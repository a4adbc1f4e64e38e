"""Watts of a step, from data sheets and utilisation."""

from __future__ import annotations

from dataclasses import replace

import pytest
from torch import nn

from placer import tracing
from placer.pricing import Prediction, Residence, gpu_profile, predict
from placer.pricing.power import CPU_FULL, CPU_IDLE, GPU_IDLE, power_limit, step_watts
from placer.profile.profile import Profile
from placer.workload import make_workload


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
