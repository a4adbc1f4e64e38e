"""Fused layers of transformer encoders."""

from __future__ import annotations

import torch
from described import spec, traced, work
from torch import nn

from placer.pricing.describe import amounts


def test_the_fused_encoder_layer() -> None:
    layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True).eval()
    found = traced(layer, "aten::_transformer_encoder_layer_fwd", example=(torch.randn(3, 7, 16),), mode="infer")
    weights = 16 * 48 + 16 * 16 + 2 * 16 * 32
    assert found.family == "encoder"
    assert found.sizes[:5] == (21, 7, 16, weights, 4)
    assert found.flops == 2 * 21 * weights + 4 * 21 * 7 * 16


def test_its_attention_is_counted_apart_and_a_mask_is_no_weight() -> None:
    tokens, square = spec(3, 7, 16), spec(16, 16)
    found = work("aten::_native_multi_head_attention", [tokens, square, spec(7, 7)], [tokens], 16, 4)
    assert found.sizes[:5] == (21, 7, 16, 256, 4)
    assert (amounts(found)["scores"], amounts(found)["activations"]) == (21 * 7 * 4, 21 * 16)
    one = work("aten::_native_multi_head_attention", [spec(7, 16), square], [spec(7, 16)], 16, True)
    assert one.sizes[:5] == (7, 7, 16, 256, 1)
