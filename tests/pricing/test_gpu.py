"""GPUs that nobody measured here: what physics allow their kernels, what is learnt of others, and their profiles."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from described import spec, work
from priced import matmul
from torch import nn

from placer import profile as profiles
from placer.pricing import FAMILIES, CostModel, Work, describe_step, device_model, gpu_profile
from placer.pricing.gpu import device_model as module
from placer.pricing.gpu import rows_of
from placer.pricing.gpu.catalog_profile import published_host
from placer.pricing.gpu.device_model import networks
from placer.pricing.prediction import SIGMA
from placer.profile import Profile, find_gpu, gpus
from placer.tracing import trace
from placer.workload import make_workload

# --- what a price rests on ----------------------------------------------------------------------------------------


def relu(numel: int, dtype: str = "float32") -> Work:
    return work("aten::relu", [spec(numel, dtype=dtype)], [spec(numel, dtype=dtype)])


def convolution(*kernel: int, rank: int = 2) -> Work:
    image, weight = spec(16, 64, *(28,) * rank), spec(64, 64, *kernel)
    ones, zeros = (1,) * rank, (0,) * rank
    return work("aten::convolution", [image, weight], [image], ones, ones, ones, False, zeros, 1)


#: A special function that nobody published.
ERFINV = work("aten::erfinv", [spec(2**20)], [spec(2**20)])


@pytest.mark.parametrize(
    ("gpu", "asked", "source"),
    [
        ("RTX 3090", relu(2**22), "published"),
        ("RTX 3090", relu(2**34), "learnt"),
        ("RTX 3090", relu(2**22, "float64"), "learnt"),  # nobody's size, and dtype
        ("L4", relu(2**22), "learnt"),
        ("L4", matmul(1024), "learnt"),  # nobody's GPU
        ("RTX 3090", replace(ERFINV, effort=None), "guess"),
        ("RTX 3090", ERFINV, "physics"),
        ("V100", convolution(3, 3), "published"),
        ("V100", convolution(3, 3, 3, rank=3), "learnt"),
    ],
)
def test_an_op_is_published_only_where_rows_of_its_kind_dtype_and_size_are(gpu: str, asked: Work, source: str) -> None:
    model = device_model(gpu)
    _, (sigma,), (found,) = model.price([asked])
    assert found == source
    (row,) = rows_of(asked)
    known, unknown = networks()[row.kind].sigma_of(row.label)
    least = {"published": known, "learnt": unknown, **SIGMA}[source]  # type: ignore[dict-item]
    assert sigma == least if source in SIGMA else least <= sigma < np.hypot(least, module.UNTRIED_SIGMA)


# --- prices -------------------------------------------------------------------------------------------------------


#: Networks, and the shape of a row of their batches.
STEPS: Mapping[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "convolutional": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1),
            nn.Conv2d(8, 8, 3, groups=8),
            nn.BatchNorm2d(8),
            nn.ConvTranspose2d(8, 4, 2, stride=2),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Dropout(0.5),
            nn.Linear(4, 5),
        ),
        (3, 32, 32),
    ),
    "transformer": (lambda: nn.TransformerEncoderLayer(64, 4, dim_feedforward=128, batch_first=True), (32, 64)),
    "recurrent": (lambda: nn.LSTM(32, 64, batch_first=True), (20, 32)),
}


def step(name: str, batch: int) -> list[Work]:
    make, shape = STEPS[name]
    return list(describe_step(trace(make_workload(make(), (batch, *shape), mode="train", optimizer="adam"))))


@pytest.mark.parametrize("name", STEPS)
def test_every_gpu_of_the_catalog_prices_a_step(name: str) -> None:
    asked = step(name, 16)
    launching = [bool(rows_of(each)) for each in asked]
    provenances = set()
    for sheet in gpus().values():
        model = device_model(sheet.name)
        seconds, sigmas, sources = model.price(asked)
        assert np.isfinite(seconds).all(), sheet.name
        assert [each > 0.0 for each in seconds] == launching, sheet.name
        assert all(0.0 < sigma < 1.0 for sigma, own in zip(sigmas, launching, strict=True) if own), sheet.name
        assert set(sources) <= {"published", "learnt", "physics", "guess", "calibrated"}
        assert ("published" in sources) <= (model.provenance == "published"), sheet.name
        assert 1e-6 * len(asked) < sum(seconds) < 0.1, sheet.name
        provenances.add(model.provenance)
    assert provenances == {"published", "data sheet"}
    known, unknown = (np.array(device_model(gpu).price(asked)[1]) for gpu in ("A100", "Arc A770"))
    assert (known < unknown + 1e-9).all()  # where the data sheet is all there is, there is more doubt


@pytest.mark.parametrize("name", STEPS)
def test_twice_the_batch_never_costs_less(name: str) -> None:
    """But for a fifth: what is learnt of small kernels is not monotonic (a recurrent layer on a P100 by 19 %)."""
    steps = [step(name, batch) for batch in (1, 2, 4, 8, 16, 32, 64, 128, 256)]
    for gpu in ("T4", "V100", "A100", "H100", "RTX 4090", "P100", "MI210", "Arc A770", "M1 Pro", "GTX 1080 Ti", "B200"):
        whole = [sum(device_model(gpu).price(each)[0]) for each in steps]
        assert all(more >= 0.8 * less for less, more in itertools.pairwise(whole)), (gpu, whole)
    t4, a100 = (sum(device_model(gpu).price(steps[-1])[0]) for gpu in ("T4", "A100"))
    assert t4 > a100


def test_torch_says_whether_products_and_convolutions_run_in_tf32(monkeypatch: pytest.MonkeyPatch) -> None:
    square, image, weight = spec(4096, 4096), spec(64, 256, 56, 56), spec(256, 256, 3, 3)
    product = work("aten::mm", [square, square], [square])
    convolved = work("aten::convolution", [image, weight], [image], (1, 1), (1, 1), (1, 1), False, (0, 0), 1)

    def seconds(gpu: str, precision: str, allowed: bool) -> list[float]:
        torch.set_float32_matmul_precision(precision)
        monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", allowed)
        return device_model(gpu).price([product, convolved])[0]

    plain, slow = seconds("A100", "highest", False)
    fast, quick = seconds("A100", "high", True)
    assert fast < 0.5 * plain
    assert quick < 0.7 * slow
    assert 0.5 < plain / (2.0 * 4096**3 / 19.5e12) < 2.0
    for gpu in ("T4", "MI300X"):  # have none
        assert seconds(gpu, "high", True) == seconds(gpu, "highest", False)


# --- profiles -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "called", "torch_device"),
    [
        ("NVIDIA T4", "Tesla T4", "cuda"),
        ("MI210", "AMD Instinct MI210", "cuda"),
        ("Arc A770", "Intel(R) Arc(TM) A770 Graphics", "xpu"),
        ("M1 Pro", "Apple M1 Pro", "mps"),
    ],
)
def test_a_gpu_is_one_device_and_says_which(name: str, called: str, torch_device: str, tmp_path: Path) -> None:
    found, sheet = gpu_profile(name), find_gpu(called)
    assert (found.name, found.devices()) == (called, (torch_device,))
    fit = found.fit(torch_device)
    assert (fit.gpu, dict(fit.families), fit.reference) == (called, {}, "")
    assert fit.rates["flops/float32"] == pytest.approx(1e12 * sheet.float32_tflops)
    assert fit.rates["bytes_per_second"] == pytest.approx(1e9 * sheet.bandwidth_gbps)
    assert profiles.memory_of(found, torch_device) == int(1e9 * sheet.memory_gb)
    assert ("flops/bfloat16" in fit.rates) == (sheet.tensor_bfloat16_tflops > 0.0)
    asked = [matmul(64), matmul(2048)]
    assert CostModel(fit).price_works(asked) == device_model(name).price(asked)
    path = profiles.save(found, tmp_path / "gpu.json")
    assert replace(profiles.load(path), name=found.name) == found


def test_the_host_is_the_one_that_was_calibrated(handmade_profile: Profile) -> None:
    facts = handmade_profile.fingerprint
    only_gpu = replace(handmade_profile, fits=handmade_profile.fits[1:])
    for host, reference, cores in (
        (handmade_profile, facts["cpu"], facts["cores"]),
        (None, "", None),
        (only_gpu, "", None),
    ):
        beside = gpu_profile("T4", host)
        assert (beside.fit("cuda").reference, beside.fingerprint.get("host_cores")) == (reference, cores)


def test_every_gpu_has_what_the_timeline_reads_and_copies_no_faster_than_its_link() -> None:
    lane = {1: 0.25e9, 2: 0.5e9, 3: 0.985e9, 4: 1.97e9, 5: 3.94e9, 6: 7.56e9}  # bytes per second, after encoding
    for sheet in gpus().values():
        rates, framework = published_host(sheet, None)
        assert all(0.0 < framework.get(f"host/{family}", framework["host"]) < 1e-3 for family in FAMILIES)
        for name in ("launch_seconds", "sync_seconds", "issue_seconds", "context_seconds", "first_call_seconds"):
            assert 0.0 < rates[name] < 10.0, (sheet.name, name)
        for direction in ("h2d", "d2h"):
            slow, fast = (rates[f"copy/{direction}/{memory}/bytes_per_second"] for memory in ("pageable", "pinned"))
            assert 1e8 < slow <= fast < 1e12, sheet.name
            if sheet.pcie_gen and not sheet.integrated:
                assert fast <= lane[min(sheet.pcie_gen, 6)] * (sheet.pcie_lanes or 16), sheet.name
            for memory in ("pageable", "pinned"):
                assert 1e-6 < rates[f"copy/{direction}/{memory}/seconds_per_tensor"] < 1e-3, sheet.name
