"""The price of a compiled step beside that of the same step eager."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from placer.calibration.benchmarks.probe import Apply
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


MI210, P100, T4 = "MI210", "Tesla P100-PCIE-16GB", "T4"


@pytest.mark.parametrize(
    ("model", "options", "device", "gpu", "why"),
    [
        (nn.Linear(8, 8), {"backend": "aot_eager"}, "cpu", "", "aot_eager is not the default one"),
        (Apply(lambda x: x * 2 if x.sum().item() > 0 else x), {}, "cpu", "", "reads values in Python"),
        (nn.Sequential(nn.LSTM(8, 8), Apply(lambda outputs: outputs[0].relu())), {}, "cpu", "", "recurrent layers"),
        (nn.Linear(8, 8), {}, "mps", "", "nobody measured the compiler on mps"),
        (nn.Linear(8, 8), {}, "cuda", MI210, "nobody measured"),
        (nn.Linear(8, 8), {}, "cuda", P100, "capability is below 7.0"),
        (nn.Linear(8, 8), {}, "cuda", T4, None),
    ],
)
def test_what_is_not_priced_says_so_and_keeps_the_eager_price(
    model: nn.Module, options: dict[str, Any], device: str, gpu: str, why: str | None, cpu: Profile
) -> None:
    profile = gpu_profile(gpu) if gpu else cpu
    compiled = torch.compile(model, **options)
    said = not_priced(trace(make_workload(compiled, (4, 2, 8), mode="infer")), device, gpu and profile.fit("cuda").gpu)
    assert (why is None) == (said is None)
    assert why is None or why in str(said)
    if device == "mps":
        return
    before, after = (price(m, profile, (4, 2, 8), device=device) for m in (model, compiled))
    assert (after.priced.compilation is None) == (why is not None)
    if why is not None:
        assert after.step_seconds == before.step_seconds
        assert any(why in note for note in after.priced.trace.notes)
