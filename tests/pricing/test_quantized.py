"""Layers of 8-bit weights: what they do, by the op calls of real modules, and that their prices are guesses."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from placer import profile as profiles
from placer.pricing import Prediction, Work, describe_step, gpu_profile, predict
from placer.tracing import trace
from placer.workload import make_workload

pytestmark = pytest.mark.skipif(
    "x86" not in torch.backends.quantized.supported_engines, reason="torch has no 8-bit kernels for this CPU"
)


class Within(nn.Module):
    """A layer, whose own copy is quantized."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Any) -> Any:
        return self.layer(x)


class Converted(nn.Module):
    """A layer between numbers that are quantized and read back."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.quantize, self.layer = torch.ao.quantization.QuantStub(), layer
        self.dequantize = torch.ao.quantization.DeQuantStub()

    def forward(self, x: Tensor) -> Any:
        return self.dequantize(self.layer(self.quantize(x)))


def dynamic(layer: nn.Module, dtype: torch.dtype = torch.qint8) -> nn.Module:
    kinds = {nn.LSTM, nn.GRU, nn.LSTMCell, nn.GRUCell, nn.RNNCell, nn.Linear}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch announces the end of its own quantization
        quantized: nn.Module = torch.ao.quantization.quantize_dynamic(Within(layer), kinds, dtype=dtype)
    return quantized


def static(layer: nn.Module, batch: tuple[int, ...]) -> nn.Module:
    model = Converted(layer).eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.qconfig = torch.ao.quantization.get_default_qconfig("x86")  # type: ignore[assignment]
        prepared = torch.ao.quantization.prepare(model)
        prepared(torch.randn(batch))
        converted: nn.Module = torch.ao.quantization.convert(prepared)
    return converted


def step_of(model: nn.Module, batch: tuple[int, ...]) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return trace(make_workload(model.eval(), batch, mode="infer"))


def works_of(model: nn.Module, batch: tuple[int, ...]) -> list[Work]:
    return [work for work in describe_step(step_of(model, batch)) if work.family == "quantized"]


def price(model: nn.Module, batch: tuple[int, ...]) -> Prediction:
    known = profiles.load("intel-xeon-avx512-2-core", samples=False)
    return predict(step_of(model, batch), known, devices=["cpu"], threads=1)["cpu"]


#: A layer of 8-bit weights, the shape of its batch, and its multiply-adds.
LAYERS: Mapping[str, tuple[Callable[[], nn.Module], tuple[int, ...], float]] = {
    "linear": (lambda: dynamic(nn.Linear(64, 32)), (3, 5, 64), 15 * 2048),
    "half": (lambda: dynamic(nn.Linear(64, 32), torch.float16), (15, 64), 15 * 2048),
    "lstm": (lambda: dynamic(nn.LSTM(8, 16, 2)), (5, 3, 8), 15 * 64 * (24 + 32)),
    "gru": (lambda: dynamic(nn.GRU(8, 16)), (5, 3, 8), 15 * 48 * 24),
    "lstm cell": (lambda: dynamic(nn.LSTMCell(8, 16)), (3, 8), 3 * 64 * 24),
    "static linear": (lambda: static(nn.Linear(64, 32), (3, 64)), (3, 64), 3 * 2048),
    "convolution": (lambda: static(nn.Conv2d(4, 8, 3, 2, 1), (2, 4, 8, 8)), (2, 4, 8, 8), 32 * 8 * 36),
    "groups": (lambda: static(nn.Conv2d(4, 8, 3, groups=2), (2, 4, 8, 8)), (2, 4, 8, 8), 72 * 8 * 18),
}


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_of_8_bit_weights_is_priced_by_its_products_and_by_reading_its_weights_once(name: str) -> None:
    """Which takes as long as some nine rows of products."""
    build, batch, products = LAYERS[name]
    (work,) = works_of(build(), batch)
    assert work.effort is not None
    assert 2 * products <= work.effort.flops <= 2 * products * 10


#: A layer in float32, its twin, and the shape of a batch that is large enough for the products to count.
TWINS: Mapping[str, tuple[nn.Module, nn.Module, tuple[int, ...]]] = {
    "linear": (nn.Linear(1024, 1024), dynamic(nn.Linear(1024, 1024)), (64, 1024)),
    "lstm": (nn.LSTM(80, 512, 3), dynamic(nn.LSTM(80, 512, 3)), (50, 8, 80)),
    "gru": (nn.GRU(64, 256), dynamic(nn.GRU(64, 256)), (50, 8, 64)),
    "convolution": (nn.Conv2d(64, 64, 3), static(nn.Conv2d(64, 64, 3), (1, 64, 28, 28)), (8, 64, 28, 28)),
}


@pytest.mark.parametrize("name", TWINS)
def test_8_bits_are_a_few_times_as_fast_as_float32_and_a_guess(name: str) -> None:
    plain, quantized, batch = TWINS[name]
    in_float32, in_8_bits = price(plain, batch), price(quantized, batch)
    assert 1 / 12 < in_8_bits.step_seconds / in_float32.step_seconds < 2
    families = dict(zip(in_8_bits.priced.families, in_8_bits.priced.sources, strict=True))
    assert families["quantized"] == "guess"
    # No calibration makes a guess narrower: a factor of 3 in nine of ten.
    assert math.sqrt(in_8_bits.high / in_8_bits.low) > 2.0


def test_a_gpu_that_has_no_kernel_for_it_is_priced_all_the_same() -> None:
    """What cannot run there is for decisions to say, not for prices."""
    found = predict(step_of(dynamic(nn.LSTM(8, 16)), (5, 3, 8)), gpu_profile("T4"), devices=["cuda"])["cuda"]
    assert 0.0 < found.low < found.step_seconds < found.high
