"""Layers of 8-bit weights: what they do, by the op calls of real modules, and that their prices are guesses."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import nn

from placer import profile as profiles
from placer.pricing import Prediction, predict
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


def dynamic(layer: nn.Module, dtype: torch.dtype = torch.qint8) -> nn.Module:
    kinds = {nn.LSTM, nn.GRU, nn.LSTMCell, nn.GRUCell, nn.RNNCell, nn.Linear}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch announces the end of its own quantization
        quantized: nn.Module = torch.ao.quantization.quantize_dynamic(Within(layer), kinds, dtype=dtype)
    return quantized


def step_of(model: nn.Module, batch: tuple[int, ...]) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return trace(make_workload(model.eval(), batch, mode="infer"))


def price(model: nn.Module, batch: tuple[int, ...]) -> Prediction:
    known = profiles.load("intel-xeon-avx512-2-core")
    return predict(step_of(model, batch), known, devices=["cpu"], threads=1)["cpu"]


#: A layer in float32, its twin, and the shape of a batch that is large enough for the products to count.
TWINS: Mapping[str, tuple[nn.Module, nn.Module, tuple[int, ...]]] = {
    "linear": (nn.Linear(1024, 1024), dynamic(nn.Linear(1024, 1024)), (64, 1024)),
    "lstm": (nn.LSTM(80, 512, 3), dynamic(nn.LSTM(80, 512, 3)), (50, 8, 80)),
    "gru": (nn.GRU(64, 256), dynamic(nn.GRU(64, 256)), (50, 8, 64)),
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
