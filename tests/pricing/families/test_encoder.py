"""Fused layers of transformer encoders."""

from __future__ import annotations

import torch
from described import traced
from torch import nn


def test_the_fused_encoder_layer() -> None:
    layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True).eval()
    found = traced(layer, "aten::_transformer_encoder_layer_fwd", example=(torch.randn(3, 7, 16),), mode="infer")
    weights = 16 * 48 + 16 * 16 + 2 * 16 * 32
    assert found.family == "encoder"
    assert found.sizes[:5] == (21, 7, 16, weights, 4)
    assert found.flops == 2 * 21 * weights + 4 * 21 * 7 * 16
