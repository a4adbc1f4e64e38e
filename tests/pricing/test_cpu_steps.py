"""What CPUs take: cores that share an op, convolutions without oneDNN, updates of every form, weights of 8 bits."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from placer.calibration.benchmarks.probe import Apply
from placer.pricing import CostModel, Prediction, Work, cpu_profile, describe_step, predict
from placer.profile import Cores, find_cpu, load
from placer.profile.profile import Device, Profile
from placer.tracing import trace
from placer.workload import make_workload


def price(model: nn.Module, batch: Any, profile: Profile, threads: int = 1, **workload: Any) -> Prediction:
    step = trace(make_workload(model, batch=batch, **{"mode": "infer", **workload}))
    return predict(step, profile, devices=("cpu",), threads=threads)["cpu"]


# --- cores that share an op -------------------------------------------------------------------------------------------

CORE = load("intel-xeon-avx512-2-core").fit("cpu", 1)


def work(function: Callable[..., Any], *operands: Tensor) -> Work:
    (only,) = describe_step(trace(make_workload(Apply(function), batch=operands, mode="infer", data="device")))
    return only


def shared_by(threads: int, *, scaling: float = 1.0) -> Device:
    flops = CORE.rates["flops/float32"] * threads**scaling
    cores = Cores(CORE.rates, 7e-6, flops, CORE.rates["bytes_per_second"] * threads)
    return replace(CORE, threads=threads, cores=cores)


def seconds(of: Work, fit: Device) -> float:
    return CostModel(fit).price_works([of])[0][0]


@pytest.mark.parametrize(
    ("function", "shapes"),
    [
        (torch.mm, [(1024, 1024), (1024, 1024)]),
        (torch.bmm, [(64, 64, 64), (64, 64, 64)]),
        (F.conv2d, [(1, 64, 56, 56), (64, 64, 3, 3)]),
        (F.conv2d, [(32, 64, 28, 28), (64, 64, 3, 3)]),
        (lambda x: F.max_pool2d(x, 2), [(16, 64, 56, 56)]),
        (lambda x: x.sum(0), [(4096, 1024)]),
    ],
)
def test_large_ops_become_faster_with_every_core_but_no_faster_than_all_of_them(
    function: Callable[..., Any], shapes: list[tuple[int, ...]]
) -> None:
    of = work(function, *map(torch.rand, shapes))
    times = [seconds(of, CORE), *(seconds(of, shared_by(threads)) for threads in (2, 4, 8, 16))]
    assert times == sorted(times, reverse=True)
    assert times[0] / times[-1] < 32.0  # a share of the operands may fit a nearer cache
    assert seconds(of, shared_by(16, scaling=0.7)) > times[-1]


@pytest.mark.parametrize(
    ("function", "operand"),
    [(lambda x: x.uniform_(), torch.empty(1 << 20)), (torch.unique, torch.zeros(1 << 16, dtype=torch.long))],
)
def test_what_one_core_runs_costs_the_same_with_any_number(function: Callable[..., Any], operand: Tensor) -> None:
    of = work(function, operand)
    assert seconds(of, shared_by(2)) == seconds(of, shared_by(64)) == pytest.approx(seconds(of, CORE))


# --- CPUs of the catalog ----------------------------------------------------------------------------------------------


def on_sheet(model: nn.Module, shape: tuple[int, ...], cpu: str, threads: int = 4) -> float:
    return price(model, shape, cpu_profile(find_cpu(cpu), threads), threads, data="device").step_seconds


def test_sixteen_images_go_to_a_slow_library_on_an_apple() -> None:
    convolution = nn.Conv2d(64, 64, 3, padding=1)
    apple, x86 = (
        [on_sheet(convolution, (images, 64, 56, 56), cpu) for images in (15, 16)] for cpu in ("Apple M4", "i9-10940X")
    )
    assert apple[1] > 1.5 * apple[0]
    assert x86[1] < 1.3 * x86[0]


def test_a_published_time_of_a_large_product() -> None:
    """One of 2,048 numbers a side takes 11.5 ms on an M4."""
    assert 7.0e-3 < on_sheet(nn.Linear(2048, 2048, bias=False), (2048, 2048), "Apple M4") < 20e-3


def test_memory_of_large_results_is_not_shared_by_cores() -> None:
    """From 32 MB on glibc gives results back to the system, which hands out pages at one rate to all cores."""
    few, many = (on_sheet(nn.ReLU(), (2**24,), "i9-10940X", threads) for threads in (4, 14))
    assert few == pytest.approx(many, rel=0.1)
    assert many > 64e6 / 14e9
    assert on_sheet(nn.ReLU(), (2**22,), "i9-10940X", 14) < many / 8.0


# --- updates ----------------------------------------------------------------------------------------------------------

EPYC = load("amd-epyc-avx512-2-core")


class Bag(nn.Module):
    """Equal parameters, each of which gets a gradient at the cost of one addition."""

    def __init__(self, count: int, *shape: int) -> None:
        super().__init__()
        self.shape = shape
        self.tensors = nn.ParameterList([nn.Parameter(torch.zeros(shape)) for _ in range(count)])

    def forward(self, x: Tensor) -> Tensor:
        for tensor in self.tensors:
            x = x + tensor
        return x


def updated(model: Bag, optimizer: Callable[..., torch.optim.Optimizer], **flags: bool) -> Prediction:
    return price(model, model.shape, EPYC, mode="train", optimizer=optimizer(model.parameters(), **flags))


@pytest.mark.parametrize("size", [64, 256, 1024])
def test_the_products_of_muon_are_in_its_price(size: int) -> None:
    muon, adam = (updated(Bag(2, size, size), kind) for kind in (torch.optim.Muon, torch.optim.AdamW))
    assert muon.step_seconds > 1.5 * adam.step_seconds


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.AdamW])
def test_the_forms_of_an_update_are_priced_apart(kind: Any) -> None:
    """Fifty small tensors: the loop calls every op from Python, for each of them."""
    forms = ({"fused": True}, {"foreach": True}, {})
    fused, foreach, loop = (updated(Bag(50, 64), kind, **flags).step_seconds for flags in forms)
    assert fused < foreach < loop


@pytest.mark.parametrize("flag", ["foreach", "fused"])
def test_an_op_over_a_list_takes_the_longer_the_more_tensors_it_has(flag: str) -> None:
    def of_update(count: int) -> float:
        priced = updated(Bag(count, 64), torch.optim.Adam, **{flag: True}).priced
        return sum(t for call, t in zip(priced.trace.calls, priced.seconds, strict=True) if f"_{flag}_ad" in call.op)

    assert of_update(40) > 2.0 * of_update(10) > 0.0


# --- weights of 8 bits ------------------------------------------------------------------------------------------------


#: A layer, and the shape of a batch that is large enough for the products to count.
LAYERS: Mapping[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "linear": (lambda: nn.Linear(1024, 1024), (64, 1024)),
    "lstm": (lambda: nn.LSTM(80, 512, 3), (50, 8, 80)),
    "gru": (lambda: nn.GRU(64, 256), (50, 8, 64)),
}


@pytest.mark.skipif(
    "x86" not in torch.backends.quantized.supported_engines, reason="torch has no 8-bit kernels for this CPU"
)
@pytest.mark.parametrize("name", LAYERS)
def test_8_bits_are_a_few_times_as_fast_as_float32_and_a_guess(name: str) -> None:
    make, batch = LAYERS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch announces the end of its own quantization
        kinds = {nn.LSTM, nn.GRU, nn.Linear}
        quantized = torch.ao.quantization.quantize_dynamic(nn.Sequential(make()), kinds, dtype=torch.qint8)
        profile = load("intel-xeon-avx512-2-core")
        in_float32, in_8_bits = (price(model.eval(), batch, profile) for model in (make(), quantized))
    assert 1 / 12 < in_8_bits.step_seconds / in_float32.step_seconds < 2
    assert dict(zip(in_8_bits.priced.families, in_8_bits.priced.sources, strict=True))["quantized"] == "guess"
    # No calibration makes a guess narrower: a factor of 3 in nine of ten.
    assert math.sqrt(in_8_bits.high / in_8_bits.low) > 2.0
