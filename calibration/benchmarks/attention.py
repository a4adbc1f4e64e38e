"""Scaled dot-product attention, with and without mask, dropout and causality."""

from __future__ import annotations

from functools import partial
from random import Random

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from placer.calibration.benchmarks.probe import Branch, Limit, Probe, block, log_int, tensor

#: Longest sequences.
LONGEST, LONGEST_ON_ACCELERATOR = 1024, 8192


class Attention(nn.Module):
    """Attention proper, on a stack of queries, keys and values: batch x heads x (3 * length) x width."""

    def __init__(self, causal: bool, masked: bool, dropout: float) -> None:
        super().__init__()
        self.causal, self.masked, self.dropout = causal, masked, dropout

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = x.chunk(3, dim=2)
        mask = torch.zeros(q.shape[-2], k.shape[-2], device=x.device, dtype=x.dtype) if self.masked else None
        dropout = self.dropout if self.training else 0.0
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout, is_causal=self.causal)


class Projected(nn.Module):
    """Attention on strided views of one projection, as layers make: batch x length x (3 * heads * width)."""

    def __init__(self, heads: int, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in x.chunk(3, dim=-1))
        return F.scaled_dot_product_attention(q, k, v, is_causal=self.causal).transpose(1, 2).flatten(2)


def propose(random: Random, limit: Limit) -> Probe:
    """A block of attentions on random shapes."""
    return block("attention", random, limit, partial(_draw, limit=limit), most=6)


def _draw(random: Random, limit: Limit) -> Branch:
    batch, heads = log_int(random, 1, 64), log_int(random, 1, 16)
    longest = LONGEST if limit.accelerator is None else LONGEST_ON_ACCELERATOR
    length, width = log_int(random, 2, longest), random.choice((8, 16, 32, 64, 64, 96, 128))
    causal = random.random() < 0.3
    masked = not causal and random.random() < 0.4
    dropout = 0.1 if random.random() < 0.35 else 0.0
    flops = 4.0 * batch * heads * length * length * width + 20.0 * batch * heads * length * length
    moved = 16.0 * batch * heads * length * width
    kind = " causal" * causal + " masked" * masked + " dropout" * bool(dropout)
    name = f"attention {batch}x{heads}x{length}x{width}{kind}"
    if not masked and not dropout and random.random() < 0.6:
        return Branch(
            name,
            lambda: Projected(heads, causal),
            lambda grad: tensor(batch, length, 3 * heads * width, grad=grad),
            flops,
            moved,
        )
    return Branch(
        name,
        lambda: Attention(causal, masked, dropout),
        lambda grad: tensor(batch, heads, 3 * length, width, grad=grad),
        flops,
        moved,
    )
