"""The price of a compiled step beside that of the same step eager."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from placer.pricing import Prediction, gpu_profile, predict
from placer.pricing.compiled import not_priced
from placer.profile import Profile, load
from placer.tracing import trace
from placer.workload import make_workload


@pytest.fixture(scope="module")
def cpu() -> Profile:
    return load("amd-epyc-avx512-2-core")


@pytest.fixture(scope="module")
def gpu() -> Profile:
    return gpu_profile("RTX 3090")


class Pointwise(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        for _ in range(10):
            x = (x * 1.5).sigmoid() + 0.5
        return x


def price(
    model: Any, profile: Profile, shape: tuple[int, ...], mode: str = "infer", device: str = "cuda"
) -> Prediction:
    found = trace(make_workload(model, shape, mode=mode))
    return predict(found, profile, devices=[device], data="device", threads=2 if device == "cpu" else None)[device]


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_chain_of_ops_saves_its_traffic(device: str, cpu: Profile, gpu: Profile) -> None:
    profile = cpu if device == "cpu" else gpu
    model = Pointwise()
    eager = price(model, profile, (1024, 4096), device=device)
    compiled = price(torch.compile(model), profile, (1024, 4096), device=device)
    if device == "cuda":  # 30 ops of two operands each, and one kernel that reads once and writes once
        assert 20.0 < eager.components["compute"] / compiled.components["compute"] < 40.0
    else:  # the sigmoid's arithmetic stays
        assert 1.3 < eager.step_seconds / compiled.step_seconds < 10.0
    assert sum(compiled.components.values()) == pytest.approx(compiled.step_seconds)


@pytest.mark.parametrize("mode", ["infer", "train"])
def test_products_stay_and_the_update_is_eager(mode: str, gpu: Profile) -> None:
    model = nn.Sequential(nn.Linear(512, 512), nn.GELU(), nn.Linear(512, 512)).train(mode == "train")
    eager, compiled = (price(m, gpu, (4096, 512), mode) for m in (model, torch.compile(model)))
    rows = zip(eager.priced.families, eager.priced.seconds, compiled.priced.seconds, strict=True)
    for family, before, after in rows:
        if family in ("matmul", "optimizer"):
            assert after == before
    assert compiled.components["compute"] <= eager.components["compute"]


def test_a_cuda_graph_is_launched_at_once(gpu: Profile) -> None:
    model = nn.Sequential(*(nn.Linear(32, 32) for _ in range(40)))
    default, graph = (price(torch.compile(model, mode=m), gpu, (4, 32)) for m in ("default", "reduce-overhead"))
    assert graph.step_seconds < 0.7 * default.step_seconds
    assert sum(graph.priced.host_seconds) < 20e-6
    assert any("CUDA graph" in note for note in graph.priced.trace.notes)


class Reads(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * 2 if x.sum().item() > 0 else x


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.lstm(x)[0])


@pytest.mark.parametrize(
    ("model", "options", "device", "said"),
    [
        (nn.Linear(8, 8), {"backend": "aot_eager"}, "cpu", "aot_eager is not the default one"),
        (Reads(), {}, "cpu", "reads values in Python"),
        (Recurrent(), {}, "cpu", "recurrent layers"),
        (nn.Linear(8, 8), {}, "mps", "nobody measured the compiler on mps"),
    ],
)
def test_what_is_not_priced_says_so_and_keeps_the_eager_price(
    model: nn.Module, options: dict[str, Any], device: str, said: str, cpu: Profile
) -> None:
    found = trace(make_workload(torch.compile(model, **options), (4, 2, 8), mode="infer"))
    assert said in str(not_priced(found, device))
    if device == "cpu":
        eager, compiled = (price(m, cpu, (4, 2, 8), device="cpu") for m in (model, torch.compile(model, **options)))
        assert compiled.step_seconds == eager.step_seconds
        assert compiled.priced.compilation is None
        assert any(said in note for note in compiled.priced.trace.notes)


@pytest.mark.parametrize(
    ("name", "said"), [("MI210", "nobody measured"), ("Tesla P100-PCIE-16GB", "capability is below 7.0"), ("T4", None)]
)
def test_a_gpu_that_the_compiler_does_not_serve_keeps_the_eager_price(name: str, said: str | None) -> None:
    found = trace(make_workload(torch.compile(nn.Linear(8, 8)), (4, 8), mode="infer"))
    profile = gpu_profile(name)
    why = not_priced(found, "cuda", profile.fit("cuda").gpu)
    assert said in why if said and why else why is said
    prediction = predict(found, profile, devices=["cuda"])["cuda"]
    assert (prediction.priced.compilation is None) == (said is not None)
