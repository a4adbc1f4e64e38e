"""Profiles of GPUs of the catalog: copies, host and rates."""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from pathlib import Path

import pytest
from described import spec, work
from priced import device, matmul

from placer import pricing
from placer import profile as profiles
from placer.pricing import FAMILIES, host_seconds
from placer.pricing.cost_model import CostModel
from placer.pricing.framework import LEARNT
from placer.pricing.gpu.catalog_profile import REFERENCE_DISPATCH, copy_rates, gpu_profile, published_host
from placer.pricing.gpu.device_model import device_model
from placer.pricing.timeline import copy_seconds
from placer.profile import DeviceFit, find_gpu, gpus
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

DIRECTIONS, MEMORIES = ("h2d", "d2h"), ("pageable", "pinned")


def fit(name: str) -> DeviceFit:
    return DeviceFit("cuda", 1, copy_rates(find_gpu(name)), {}, {}, {})


def test_every_gpu_has_what_the_timeline_reads() -> None:
    for sheet in gpus().values():
        rates = copy_rates(sheet)
        assert len(rates) == 8
        for direction in DIRECTIONS:
            for memory in MEMORIES:
                prefix = f"copy/{direction}/{memory}"
                assert 1e-6 < rates[f"{prefix}/seconds_per_tensor"] < 1e-3, sheet.name
                assert 1e8 < rates[f"{prefix}/bytes_per_second"] < 1e12, sheet.name
            slow, fast = (rates[f"copy/{direction}/{memory}/bytes_per_second"] for memory in MEMORIES)
            assert slow <= fast, sheet.name


def test_copies_are_no_faster_than_the_link() -> None:
    #: Bytes per second of one lane by generation, after encoding.
    lane = {1: 0.25e9, 2: 0.5e9, 3: 0.985e9, 4: 1.97e9, 5: 3.94e9, 6: 7.56e9}
    for sheet in gpus().values():
        if sheet.pcie_gen and not sheet.integrated:
            most = lane[min(sheet.pcie_gen, 6)] * (sheet.pcie_lanes or 16)
            assert copy_rates(sheet)["copy/h2d/pinned/bytes_per_second"] <= most, sheet.name


def test_seconds_of_a_copy() -> None:
    million = copy_seconds((10**6,), fit("T4"), "h2d", "pageable")
    assert million == pytest.approx(75e-6 + 1e6 / 6.5e9)
    assert copy_seconds((10**6, 10**6), fit("T4"), "h2d", "pageable") == pytest.approx(2 * million)
    assert copy_seconds((10**8,), fit("H100"), "h2d", "pinned") < copy_seconds((10**8,), fit("T4"), "h2d", "pinned")


def test_fewer_lanes_are_slower_and_pageable_memory_is_never_faster() -> None:
    sheet = replace(find_gpu("A100"), pcie_gen=4, pcie_lanes=4)
    rates = copy_rates(sheet)
    assert rates["copy/h2d/pinned/bytes_per_second"] == pytest.approx(25e9 / 4)
    assert rates["copy/h2d/pageable/bytes_per_second"] == pytest.approx(25e9 / 4)


def test_a_generation_to_come_is_taken_as_the_latest() -> None:
    assert copy_rates(replace(find_gpu("T4"), pcie_gen=9)) == copy_rates(replace(find_gpu("T4"), pcie_gen=6))


def test_shared_memory_and_other_links() -> None:
    shared = copy_rates(find_gpu("M1 Pro"))
    start = "copy/h2d/pageable/seconds_per_tensor"
    assert shared[start] < copy_rates(find_gpu("T4"))[start]
    linked = copy_rates(replace(find_gpu("H100"), pcie_gen=0, pcie_lanes=0))
    assert linked["copy/h2d/pinned/bytes_per_second"] > copy_rates(find_gpu("H100"))["copy/h2d/pinned/bytes_per_second"]

#: What ``timeline`` and ``predict`` read besides copies.
RATES = ("launch_seconds", "sync_seconds", "issue_seconds", "context_seconds", "first_call_seconds")
T4 = find_gpu("T4")


def test_every_gpu_has_what_the_timeline_reads_host() -> None:
    for sheet in gpus().values():
        rates, framework = published_host(sheet, None)
        for name in RATES:
            assert 0.0 < rates[name] < 10.0, (sheet.name, name)
        assert framework["host"] > 0.0


def test_every_family_is_issued() -> None:
    _, framework = published_host(T4, None)
    for family in FAMILIES:
        assert 0.0 < framework[f"host/{family}"] < 1e-3, family


def test_an_op_far_from_its_family_has_its_own_time() -> None:
    _, framework = published_host(T4, None)
    x, c = spec(8, 16), spec(16)
    layer_norm = work("aten::native_layer_norm", [x, c, c], [x, x, x])
    batch_norm = work("aten::native_batch_norm", [spec(8, 16, 4, 4), c, c], [spec(8, 16, 4, 4), c, c], True)
    assert 0.0 < host_seconds(layer_norm, framework) < host_seconds(batch_norm, framework)


@pytest.mark.parametrize("optimizer", ["SGD", "Adam", "AdamW"])
def test_an_update_is_issued_for_all_tensors_at_once(optimizer: str) -> None:
    _, framework = published_host(T4, None)
    one = work(f"optimizer::{optimizer}", [spec(64)], [spec(64)])
    hundred = replace(one, sizes=(one.sizes[0], 100.0))
    assert 20e-6 < host_seconds(one, framework) < 1e-3
    assert host_seconds(hundred, framework) < host_seconds(one, framework) < 100 * host_seconds(hundred, framework)


@pytest.mark.parametrize(("times", "scale"), [(1.0, 1.0), (1.5, 1.5), (0.75, 0.75), (100.0, 2.0), (0.001, 0.5)])
def test_a_slower_cpu_issues_more_slowly_within_bounds(times: float, scale: float) -> None:
    rates, framework = published_host(T4, None)
    scaled_rates, scaled = published_host(T4, device(dispatch_seconds=times * REFERENCE_DISPATCH))
    issued = [name for name in framework if name.partition("/")[0] in ("host", "host_update")]
    assert {name for name in scaled if name.startswith("host")} == set(issued)
    for name in issued:
        assert scaled[name] == pytest.approx(scale * framework[name]), name
    assert scaled_rates["issue_seconds"] == pytest.approx(scale * rates["issue_seconds"])
    for name in ("launch_seconds", "sync_seconds", "context_seconds", "copy/h2d/pinned/bytes_per_second"):
        assert scaled_rates[name] == rates[name]


def test_what_lies_between_ops_is_the_cpus_own() -> None:
    cpu = replace(device(), framework={"step": 3e-6, "autograd_node": 1e-6, "host": 1.0, "not a coefficient": 1.0})
    _, framework = published_host(T4, cpu)
    assert (framework["step"], framework["autograd_node"]) == (3e-6, 1e-6)
    assert framework["host"] < 1e-3
    assert "not a coefficient" not in framework
    _, usual = published_host(T4, None)
    assert {name for name in usual if not name.startswith("host")} <= set(LEARNT)
    assert all(0.0 < usual[name] <= 20e-6 for name in usual if not name.startswith("host"))
    assert usual["step"] > 0.0
