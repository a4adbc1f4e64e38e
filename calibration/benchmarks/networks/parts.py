"""What random networks are made of, beside torch's own layers."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Residual(nn.Module):
    """``x + body(x)``."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = x + self.body(x)
        return result


class InParts(nn.Module):
    """``body`` on one part of the batch after the other, put together again: ghost batches, chunks to save memory.

    The same few ops run many times in a row, on little each time, in a step that may be large.
    """

    def __init__(self, body: nn.Module, parts: int) -> None:
        super().__init__()
        self.body, self.parts = body, parts

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.body(part) for part in x.tensor_split(self.parts)])


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


class Recurrent(nn.Module):
    """A recurrent layer whose last output goes on."""

    def __init__(self, layer: nn.RNNBase) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.layer(x)[0][:, -1]
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


class MessagePassing(nn.Module):
    """Sums a linear map of each node's neighbours, over a fixed random edge list."""

    def __init__(self, nodes: int, edges: int, width: int) -> None:
        super().__init__()
        self.register_buffer("edges", torch.randint(0, nodes, (2, edges)))
        self.linear = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        source, target = self.get_buffer("edges")
        messages = self.linear(x)[source]
        return x + torch.zeros_like(x).index_add(0, target, messages)


class Pieces(nn.Module):
    """Arithmetic as people write it by hand: gates, means, norms and concatenations, many tiny ops."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(width, width), nn.Linear(width, width)
        self.gain = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        gate = torch.sigmoid(self.left(x))
        x = gate * torch.tanh(self.right(x)) + (1 - gate) * x
        x = (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-5) * self.gain
        a, b = x.chunk(2, -1) if x.shape[-1] % 2 == 0 else (x, x)
        return torch.cat([a, b * 0.5], -1) if x.shape[-1] % 2 == 0 else a + b


class Iterated(nn.Module):
    """A field followed step by step, ``stages`` evaluations each, as solvers of differential equations do.

    Slopes are put together one by one, or stacked and multiplied by their weights. ``clocked``: the time and the size
    of a step are tensors of one number, which are compared and read before every step, as solvers do that choose it.
    """

    def __init__(self, field: nn.Module, steps: int, stages: int, stacked: bool, clocked: bool = False) -> None:
        super().__init__()
        self.field, self.steps, self.stages, self.stacked, self.clocked = field, steps, stages, stacked, clocked
        self.register_buffer("weights", torch.full((stages,), 0.1 / stages))
        self.register_buffer("interval", torch.tensor([0.0, 1.0 / steps]))

    def forward(self, x: Tensor) -> Tensor:
        if not self.clocked:
            for _ in range(self.steps):
                x = self._step(x, 0.1)
            return x
        start, width = self.get_buffer("interval").unbind()
        time, step = start, width
        for number in range(1, self.steps + 1):
            point = start + number * width
            reached = (time + step >= point) & (step > 0)
            if not reached:  # what rounding has left of the way
                step = torch.minimum(abs(point - time), 2 * step)
            x = self._step(x, step)
            time = time + step
        return x

    def _step(self, x: Tensor, step: float | Tensor) -> Tensor:
        weights = self.get_buffer("weights")
        slopes = [self.field(x)]
        while len(slopes) < self.stages:
            slopes.append(self.field(x + step * slopes[-1]))
        if self.stacked:
            return x + (torch.stack(slopes, -1) * weights).sum(-1)
        result: Tensor = x + sum(weight * slope for weight, slope in zip(weights, slopes, strict=True))
        return result
