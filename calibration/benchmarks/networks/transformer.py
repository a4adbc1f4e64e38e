"""Transformers over tokens or vectors, of torch's own layers or of attention put together by hand."""

from __future__ import annotations

from random import Random

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from placer.calibration.benchmarks.networks.layers import ALONE, USUAL_ACTIVATIONS, Layers
from placer.calibration.benchmarks.networks.parts import Residual
from placer.calibration.benchmarks.probe import log_int, tensor


class SelfAttention(nn.Module):
    """Multi-head self-attention with projections of its own, on batch x length x width."""

    def __init__(self, width: int, heads: int, fused_projection: bool, dropout: float = 0.0) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.inputs = nn.ModuleList(
            [nn.Linear(width, 3 * width)] if fused_projection else [nn.Linear(width, width) for _ in range(3)]
        )
        self.output = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        projected = [layer(x) for layer in self.inputs]
        q, k, v = projected if len(projected) == 3 else projected[0].chunk(3, -1)
        q, k, v = [t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in (q, k, v)]
        mixed = F.scaled_dot_product_attention(q, k, v, dropout_p=self.dropout if self.training else 0.0)
        result: Tensor = self.output(mixed.transpose(1, 2).flatten(2))
        return result


class Tokens(nn.Module):
    """Embedding of tokens and positions."""

    def __init__(self, vocabulary: int, length: int, width: int) -> None:
        super().__init__()
        self.token = nn.Embedding(vocabulary, width)
        self.position = nn.Parameter(torch.randn(length, width))

    def forward(self, ids: Tensor) -> Tensor:
        result: Tensor = self.token(ids) + self.position
        return result


def transformer(random: Random) -> tuple[Layers, Tensor]:
    """One to six layers, and a linear one on top."""
    heads = random.choice((1, 2, 4, 8))
    width = heads * random.choice((8, 16, 32, 64))
    batch = 1 if random.random() < ALONE else log_int(random, 1, 32)
    length = log_int(random, 4, 256)
    fused, factor = random.random() < 0.5, random.choice((2, 4))
    activation = random.choice(USUAL_ACTIVATIONS)
    layers = Layers()
    tokens = float(batch * length)
    if random.random() < 0.6:
        vocabulary = log_int(random, 64, 20000)
        x = torch.randint(0, vocabulary, (batch, length))
        layers.add(Tokens(vocabulary, length, width), elements=tokens * width + vocabulary * width)
    else:
        x = tensor(batch, length, width)
    drop = random.random() < 0.5
    inner = 0.1 if drop and random.random() < 0.6 else 0.0
    flops = tokens * width * (8.0 * width + 4.0 * factor * width + 4.0 * length)
    if heads > 1 and random.random() < 0.25:  # torch's own layers, fused in inference
        for _ in range(log_int(random, 1, 6)):
            layers.add(
                nn.TransformerEncoderLayer(width, heads, factor * width, dropout=inner, batch_first=True),
                flops=flops,
                elements=tokens * (width * (4 + factor) + heads * length),
            )
    else:
        for _ in range(log_int(random, 1, 6)):
            feed: list[nn.Module] = [nn.Linear(width, factor * width), activation(), nn.Linear(factor * width, width)]
            attention: list[nn.Module] = [SelfAttention(width, heads, fused, inner)]
            if drop:
                feed.append(nn.Dropout(0.1))
                attention.append(nn.Dropout(0.1))
            layers.add(
                Residual(nn.Sequential(nn.LayerNorm(width), *attention)),
                Residual(nn.Sequential(nn.LayerNorm(width), *feed)),
                flops=flops,
                elements=tokens * width * (4 + factor),
            )
    layers.add(nn.Linear(width, log_int(random, 1, 256)), flops=100.0 * tokens * width)
    return layers, x
