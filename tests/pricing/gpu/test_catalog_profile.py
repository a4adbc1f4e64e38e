"""A GPU of the catalog as a profile: what it holds, what it is priced by, and names that mean nothing."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from priced import device, matmul

from placer import pricing
from placer import profile as profiles
from placer.pricing.cost_model import CostModel
from placer.pricing.gpu.catalog_profile import gpu_profile
from placer.pricing.gpu.device_model import device_model
from placer.profile.profile import Profile


@pytest.mark.parametrize(
    ("name", "called", "torch_device"),
    [("T4", "Tesla T4", "cuda"), ("NVIDIA T4", "Tesla T4", "cuda"), ("MI210", "AMD Instinct MI210", "cuda"),
     ("Arc A770", "Intel(R) Arc(TM) A770 Graphics", "xpu"), ("M1 Pro", "Apple M1 Pro", "mps")],
)  # fmt: skip
def test_a_gpu_is_one_device_and_says_which(name: str, called: str, torch_device: str) -> None:
    found = gpu_profile(name)
    assert (found.name, found.devices()) == (called, (torch_device,))
    fit = found.fit(torch_device)
    assert (fit.gpu, dict(fit.families), fit.reference) == (called, {}, "")
    sheet = profiles.find_gpu(called)
    assert fit.rates["flops/float32"] == pytest.approx(1e12 * sheet.float32_tflops)
    assert fit.rates["bytes_per_second"] == pytest.approx(1e9 * sheet.bandwidth_gbps)
    assert profiles.memory_of(found, torch_device) == int(1e9 * sheet.memory_gb)


def test_a_rate_that_no_data_sheet_states_is_left_out() -> None:
    assert "flops/bfloat16" not in gpu_profile("T4").fit("cuda").rates
    assert "flops/bfloat16" in gpu_profile("A100").fit("cuda").rates


def test_the_device_model_prices_every_op() -> None:
    works = [matmul(64), matmul(2048)]
    model = CostModel(gpu_profile("RTX 4090").fit("cuda"))
    assert model.price_works(works) == device_model("RTX 4090").price(works)
    assert model.provenance == device_model("RTX 4090").provenance


def test_of_a_calibrated_gpu_it_prices_families_without_samples() -> None:
    fit = dataclasses.replace(device(), device="cuda", gpu="Tesla T4")
    seconds, _, sources = CostModel(fit).price_works([matmul(1000)])
    assert seconds == device_model("T4").price([matmul(1000)])[0]
    assert sources == [device_model("T4").provenance]


def test_the_host_is_the_one_that_was_calibrated(handmade_profile: Profile) -> None:
    named = dataclasses.replace(handmade_profile, name="lab")
    found = gpu_profile("T4", named)
    assert found.fit("cuda").reference == named.fingerprint["cpu"]
    assert found.fingerprint["host_cores"] == named.fingerprint["cores"]
    assert "host_cores" not in gpu_profile("T4").fingerprint
    only_gpu = dataclasses.replace(named, fits=named.fits[1:])
    assert gpu_profile("T4", only_gpu).fit("cuda").reference == ""


def test_it_can_be_kept_like_any_profile(tmp_path: Path) -> None:
    found = gpu_profile("T4")
    path = profiles.save(found, tmp_path / "t4.json")
    assert dataclasses.replace(profiles.load(path), name=found.name) == found


def test_the_front_page_loads_it_on_first_use() -> None:
    assert (pricing.gpu_profile, pricing.device_model) == (gpu_profile, device_model)
    with pytest.raises(AttributeError, match="no attribute 'colour'"):
        _ = pricing.colour
