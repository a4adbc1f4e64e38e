"""The price of a compiled step beside that of the same step eager."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import placer
from placer.pricing import Prediction, gpu_profile, predict
from placer.pricing.compiled import DOUBT, _left, not_priced, parts_of
from placer.pricing.describe import fitted_features
from placer.pricing.floors import roofline_parts
from placer.pricing.fusion import Place
from placer.pricing.work import Work
from placer.profile import DeviceFit, Profile, load
from placer.tracing import trace
from placer.workload import make_workload
from tests import priced as made


@pytest.fixture(scope="module")
def cpu() -> Profile:
    return load("amd-epyc-avx512-2-core", samples=False)


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


def conv() -> nn.Module:
    return nn.Sequential(nn.Conv2d(16, 32, 3), nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 32, 3), nn.BatchNorm2d(32))


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


def test_the_interval_is_wider_and_compilation_is_paid_once(cpu: Profile) -> None:
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))
    eager, compiled = (price(m, cpu, (32, 64), device="cpu") for m in (model, torch.compile(model)))
    assert compiled.high / compiled.low > eager.high / eager.low
    assert compiled.one_time["compilation"] > 0.1
    assert "compilation" not in eager.one_time
    assert compiled.priced.compilation is not None
    assert compiled.priced.compilation.doubt == DOUBT["cpu"]


def test_a_tiny_step_is_slower_for_its_guards(cpu: Profile) -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
    eager, compiled = (price(m, cpu, (1, 8), device="cpu") for m in (model, torch.compile(model)))
    assert compiled.step_seconds > eager.step_seconds


def test_a_cuda_graph_is_launched_at_once(gpu: Profile) -> None:
    model = nn.Sequential(*(nn.Linear(32, 32) for _ in range(40)))
    default, graph = (price(torch.compile(model, mode=m), gpu, (4, 32)) for m in ("default", "reduce-overhead"))
    assert graph.step_seconds < 0.7 * default.step_seconds
    assert sum(graph.priced.host_seconds) < 20e-6
    assert any("CUDA graph" in note for note in graph.priced.trace.notes)


def test_convolutions_of_images_are_laid_out_channels_last(gpu: Profile) -> None:
    model = conv().eval()
    eager, compiled = (price(m, gpu, (64, 16, 64, 64)) for m in (model, torch.compile(model)))
    of = [i for i, family in enumerate(eager.priced.families) if family == "convolution"]
    assert [eager.priced.seconds[i] for i in of] != [compiled.priced.seconds[i] for i in of]


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


def test_a_step_without_ops_stays_as_it_is(gpu: Profile) -> None:
    prediction = price(torch.compile(nn.Identity(), mode="reduce-overhead"), gpu, (4, 8))
    assert prediction.priced.compilation is None


def test_the_parts_of_an_op_add_up() -> None:
    work = made.matmul(64)
    for fit in (made.device(), made.device({"matmul": made.family([work], [0.0], made.FLAT)})):
        assert sum(parts_of(work, 1e-3, fit)) == pytest.approx(1e-3)


def activation(n: float = 1e6) -> Work:
    return Work("elementwise", "aten::relu", "float32", n, 8 * n, (n, 8 * n, n, n, 1e6, 1, 0, 0), (0,) * 8)


def test_the_parts_of_an_op_are_those_of_its_floor() -> None:
    product, relu = made.matmul(64), activation()
    learnt = {
        "matmul": made.family([product], [0.0], made.FLAT),
        "elementwise": replace(made.family([relu], [0.0], made.FLAT), feature_names=fitted_features("elementwise")),
    }
    fit = made.device(learnt)
    parts = [2e-6, product.flops * 5e-11, product.bytes * 1e-10]
    assert parts_of(product, 1e-3, fit) == pytest.approx([1e-3 * part / sum(parts) for part in parts])
    # The arithmetic of an op of one instruction is told by the peak, not by its floor.
    start, arithmetic, traffic = parts_of(relu, 2e-3, fit)
    assert start == pytest.approx(2e-3 * 2e-6 / (2e-6 + 1e6 * 5e-11 + 8e6 * 1e-10))
    assert arithmetic == pytest.approx(8 * 1e6 / 1e11)
    assert traffic == pytest.approx(2e-3 - start - arithmetic)
    assert parts_of(relu, 1e-6, fit)[1] == pytest.approx(1e-6 - parts_of(relu, 1e-6, fit)[0])
    assert parts_of(product, 1e-3, made.device()) == pytest.approx(
        [1e-3 * part / sum(roofline_parts(product, made.device())) for part in roofline_parts(product, made.device())]
    )


def test_what_is_left_of_an_op_in_a_kernel() -> None:
    fit, work = made.device(), activation()
    start, arithmetic, traffic = parts_of(work, 2e-3, fit)

    def left(op: str = "aten::relu", where: DeviceFit = fit, **place: Any) -> float:
        return _left(work, op, 2e-3, Place(0, **{"first": False, "traffic": 0.0, **place}), where)

    assert left() == pytest.approx(arithmetic)
    assert left(first=True, traffic=0.25) == pytest.approx(start + arithmetic + traffic / 4)
    assert left(again=True) == pytest.approx(2 * arithmetic)
    # The compiler has no vector library for a hyperbolic tangent and draws numbers one by one; a GPU does neither.
    assert left("aten::tanh") - left() == pytest.approx(1e6 * 1e-9)
    random = replace(work, family="random")
    drawn = _left(random, "aten::rand", 2e-3, Place(0, traffic=0.0), fit) - parts_of(random, 2e-3, fit)[1]
    assert drawn == pytest.approx(1e6 * 4.4e-9)
    gpu = replace(fit, device="cuda")
    assert left("aten::tanh", gpu) == left("aten::relu", gpu)


def test_on_a_gpu_what_is_not_the_start_is_traffic() -> None:
    gpu = replace(made.device(dispatch_seconds=2e-6), device="cuda")
    assert parts_of(activation(), 1e-3, gpu) == pytest.approx((2e-6, 0.0, 998e-6))
    assert parts_of(activation(), 1e-6, gpu) == pytest.approx((1e-6, 0.0, 0.0))


class Product(nn.Module):
    """Of matrices that lie as they are."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(64, 8))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight


def test_only_convolutions_are_laid_out_anew(cpu: Profile) -> None:
    model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.Flatten(), nn.Linear(16 * 36, 64), Product())
    eager, compiled = (price(m, cpu, (16, 3, 8, 8), device="cpu") for m in (model, torch.compile(model)))
    rows = list(zip(eager.priced.families, eager.priced.seconds, compiled.priced.seconds, strict=True))
    assert [before == after for family, before, after in rows if family == "matmul"] == [True, True]
    assert [before == after for family, before, after in rows if family == "convolution"] == [False]


def test_an_explanation_shows_the_compilation_and_the_kernels(cpu: Profile) -> None:
    model = torch.compile(nn.Sequential(nn.Linear(8, 8), nn.ReLU()))
    found = placer.explain(model, (4, 8), mode="infer", steps=100, profile=cpu)
    assert found.devices["cpu"].one_time["compilation"] > 0.0
    assert any("priced as compiled (default)" in note for note in found.notes)
