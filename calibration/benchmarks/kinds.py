"""The kinds of random networks: dense, convolutional, transformers, recurrent, graphs and solvers."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from placer.calibration.benchmarks.layers import (
    BATCHED,
    CELLS,
    PER_STEP,
    RECURRENT,
    InParts,
    MatrixVector,
    Residual,
    Unrolled,
)
from placer.calibration.benchmarks.probe import log_int, tensor, widths

ACTIVATIONS: tuple[Callable[[], nn.Module], ...] = (
    nn.ReLU, nn.ReLU, nn.ReLU, nn.GELU, nn.SiLU, nn.Tanh, nn.Mish, nn.ELU, nn.Sigmoid, nn.LeakyReLU,
    nn.Softplus, nn.Hardswish,
)  # fmt: skip
#: The first of them, which most networks have.
USUAL_ACTIVATIONS = ACTIVATIONS[:6]
#: Share of networks that are given a single sample, as policies, solvers and servers are.
ALONE = 0.2


class Layers(list[nn.Module]):
    """Layers in sequence, with a rough count of a forward pass: FLOPs, and bytes of what is written."""

    flops = 0.0
    bytes = 0.0

    def add(self, *modules: nn.Module, flops: float = 0.0, elements: float = 0.0) -> None:
        """Append ``modules``, which together take ``flops`` and each write ``elements`` float32 numbers."""
        self.extend(modules)
        self.flops += flops
        self.bytes += 4.0 * elements * len(modules)


#: Share of networks that work on one part of their batch after the other.
IN_PARTS = 0.1


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


def mlp(random: Random) -> tuple[Layers, Tensor]:
    """A multilayer perceptron, plain or normalized or with dropout."""
    batch = 1 if random.random() < ALONE else log_int(random, 1, 8192)
    width = log_int(random, 1, 512)
    x = tensor(batch, width)
    activation = random.choice(ACTIVATIONS)
    extra = random.random()
    layers = Layers()
    sizes = widths(random, 4, 2048, log_int(random, 1, 12))
    hidden = sizes[0]
    for following in sizes:
        linear = nn.Linear(width, hidden, bias=random.random() < 0.9)
        layers.add(linear, flops=2.0 * batch * width * hidden, elements=batch * hidden + width * hidden)
        if extra < 0.2 and batch > 1:
            layers.add(nn.BatchNorm1d(hidden), elements=batch * hidden)
        elif extra < 0.35:
            layers.add(nn.LayerNorm(hidden), elements=batch * hidden)
        layers.add(activation(), elements=batch * hidden)
        if extra > 0.8:
            layers.add(nn.Dropout(0.1), elements=batch * hidden)
        width = hidden
        if random.random() < 0.3:
            hidden = following
    layers.add(nn.Linear(width, log_int(random, 1, 100)), flops=100.0 * batch * width)
    if batch >= 4 and random.random() < IN_PARTS:
        # A part of one row has no variance to normalize by.
        layers[:] = [InParts(nn.Sequential(*layers), log_int(random, 2, min(batch // 2, 32)))]
    return layers, x


def single(random: Random) -> tuple[Layers, Tensor]:
    """One layer and nothing else: what a step of a few microseconds is made of."""
    width, hidden = log_int(random, 1, 512), log_int(random, 1, 512)
    layer = random.choice(
        (
            nn.Linear(width, hidden),
            nn.Linear(width, hidden, bias=False),
            MatrixVector(hidden, width),
            nn.LayerNorm(width),
            nn.PReLU(),
        )
    )
    rows = () if isinstance(layer, MatrixVector) else (log_int(random, 1, 64),)
    layers = Layers()
    layers.add(layer, flops=2.0 * math.prod(rows) * width * hidden, elements=width * hidden)
    return layers, tensor(*rows, width)


def small(random: Random) -> tuple[Layers, Tensor]:
    """A few narrow layers on few rows, as policies and solvers call a thousand times: all of it stays in the caches."""
    batch, width = log_int(random, 1, 64), log_int(random, 1, 256)
    x = tensor(batch, width)
    activation = random.choice(USUAL_ACTIVATIONS)
    layers = Layers()
    for _ in range(random.randint(1, 4)):
        hidden = log_int(random, 2, 512)
        layers.add(nn.Linear(width, hidden), activation(), flops=2.0 * batch * width * hidden, elements=width * hidden)
        width = hidden
    layers.add(nn.Linear(width, log_int(random, 1, 16)))
    return layers, x


def pieces(random: Random) -> tuple[Layers, Tensor]:
    """Arithmetic written by hand, several times in a row."""
    width, batch = log_int(random, 2, 512), log_int(random, 1, 2048)
    layers = Layers()
    for _ in range(log_int(random, 1, 10)):
        layers.add(Pieces(width), flops=4.0 * batch * width * width, elements=12.0 * batch * width)
    return layers, tensor(batch, width)


#: Convolution, normalization, pooling and mean by number of dimensions.
_BY_DIMENSIONS: dict[int, Any] = {
    1: (nn.Conv1d, nn.BatchNorm1d, nn.MaxPool1d, nn.AdaptiveAvgPool1d),
    2: (nn.Conv2d, nn.BatchNorm2d, nn.MaxPool2d, nn.AdaptiveAvgPool2d),
}


@dataclass
class _Image:
    """What the next layer is given, how many channels it makes of it, and what all layers of the network share."""

    dims: int
    batch: int
    side: int
    channels: int
    width: int
    activation: Any
    normalized: bool
    bottleneck: bool
    #: Share of layers that are separable.
    separable: float
    #: Whether channels double wherever the image is halved, until they are many on few positions.
    staged: bool

    @property
    def points(self) -> float:
        """Positions of all images."""
        return float(self.batch * self.side**self.dims)


def cnn(random: Random) -> tuple[Layers, Tensor]:
    """A network over images, or over series of several channels, with a linear head."""
    dims = random.choice((1, 2, 2))
    channels = random.choice((1, 1, 3, 3, 4, 16))
    side = log_int(random, 16, 1024) if dims == 1 else log_int(random, 8, 128)
    batch = 1 if random.random() < ALONE else log_int(random, 1, 512 if dims == 1 else 64)
    x = tensor(batch, channels, *(side,) * dims)
    image = _Image(
        dims,
        batch,
        side,
        channels,
        width=log_int(random, 4, 128),
        activation=random.choice(ACTIVATIONS),
        normalized=random.random() < 0.5,
        bottleneck=random.random() < 0.3,
        separable=0.7 if random.random() < 0.2 else 0.1,
        staged=random.random() < 0.4,
    )
    _, norm, _, mean = _BY_DIMENSIONS[dims]
    layers = Layers()
    for _ in range(log_int(random, 1, 12 if image.staged else 8)):
        points, width = image.points, image.width
        _add_convolution(layers, random, image)
        image.channels = width
        if image.normalized:
            layers.add(norm(width), elements=points * width)
        layers.add(image.activation(), elements=points * width)
        if image.side >= (2 if image.staged else 8) and random.random() < (0.6 if image.staged else 0.4):
            _halve(layers, random, image, points)
    # A linear layer on every position, or on their mean.
    inputs = image.channels * image.side**dims
    if random.random() < 0.3:
        layers.add(nn.Flatten(), nn.Linear(inputs, 10), flops=20.0 * batch * inputs)
    else:
        head = nn.Linear(image.channels, log_int(random, 1, 100))
        layers.add(mean(1), nn.Flatten(), head, flops=float(batch * inputs))
    return layers, x


def _add_convolution(layers: Layers, random: Random, image: _Image) -> None:
    """One layer, whose result has ``image.width`` channels."""
    conv, norm, _, _ = _BY_DIMENSIONS[image.dims]
    activation, window, points = image.activation, 3**image.dims, image.points
    channels, width = image.channels, image.width
    if image.bottleneck and channels == width:
        inner = max(width // 4, 1)
        body = nn.Sequential(
            conv(width, inner, 1, bias=False),
            norm(inner),
            activation(),
            conv(inner, inner, 3, padding=1, bias=False),
            norm(inner),
            activation(),
            conv(inner, width, 1),
        )
        flops = 2.0 * points * inner * (2 * width + window * inner)
        layers.add(Residual(body), flops=flops, elements=points * (6 * inner + 2 * width))
    elif random.random() < image.separable and channels > 3:
        deep, wide = conv(channels, channels, 3, padding=1, groups=channels), conv(channels, width, 1)
        layers.add(deep, wide, flops=2.0 * points * channels * (window + width), elements=points * width)
    elif random.random() < 0.3 and channels == width:
        body = nn.Sequential(conv(width, width, 3, padding=1), activation())
        layers.add(Residual(body), flops=2.0 * points * width * width * window, elements=3 * points * width)
    else:
        kernel = random.choice((1, 3, 3, 5))
        weights = channels * width * kernel**image.dims
        layer = conv(channels, width, kernel, padding="same")
        layers.add(layer, flops=2.0 * points * weights, elements=points * width + weights)


def _halve(layers: Layers, random: Random, image: _Image, points: float) -> None:
    """Half the side, by pooling or by a strided convolution; ``points`` are the positions before."""
    conv, _, pool, _ = _BY_DIMENSIONS[image.dims]
    width = image.width
    if random.random() < 0.6:
        layers.add(pool(2), elements=points * width / 2)
        image.side = image.side // 2
    else:
        image.side = (image.side + 1) // 2
        flops = 2.0 * image.batch * image.side**image.dims * width * width * 3**image.dims
        layers.add(conv(width, width, 3, stride=2, padding=1), flops=flops)
    if image.staged or random.random() < 0.5:
        image.width = min(2 * width, 512)


class SelfAttention(nn.Module):
    """Multi-head self-attention with projections of its own, on batch x length x width."""

    def __init__(self, width: int, heads: int, fused_projection: bool, dropout: float = 0.0) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.inputs = nn.ModuleList(
            [nn.Linear(width, 3 * width)] if fused_projection else [nn.Linear(width, width) for _ in range(3)]
        )
        self.output = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Any:
        projected = [layer(x) for layer in self.inputs]
        q, k, v = projected if len(projected) == 3 else projected[0].chunk(3, -1)
        q, k, v = [t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in (q, k, v)]
        mixed = F.scaled_dot_product_attention(q, k, v, dropout_p=self.dropout if self.training else 0.0)
        return self.output(mixed.transpose(1, 2).flatten(2))


class Tokens(nn.Module):
    """Embedding of tokens and positions."""

    def __init__(self, vocabulary: int, length: int, width: int) -> None:
        super().__init__()
        self.token = nn.Embedding(vocabulary, width)
        self.position = nn.Parameter(torch.randn(length, width))

    def forward(self, ids: Tensor) -> Any:
        return self.token(ids) + self.position


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
            layer = nn.TransformerEncoderLayer(width, heads, factor * width, dropout=inner, batch_first=True)
            layers.add(layer, flops=flops, elements=tokens * (width * (4 + factor) + heads * length))
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


#: Share of networks whose cell is called in a Python loop.
LOOPED = 0.3


class LastOutput(nn.Module):
    """A recurrent layer whose last output goes on."""

    def __init__(self, layer: nn.RNNBase) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Any:
        return self.layer(x)[0][:, -1]


def recurrent(random: Random) -> tuple[Layers, Tensor]:
    """A recurrent layer, or a cell in a loop, and a linear head on the last output."""
    name = random.choice(tuple(CELLS))
    width, (hidden,) = log_int(random, 1, 128), widths(random, 8, 256, 1)
    both = random.random() < 0.2
    depth = random.choice((1, 1, 2))
    batch = 1 if random.random() < ALONE else log_int(random, 1, 64)
    if random.random() < BATCHED:
        batch, (hidden,) = log_int(random, 16, 256), widths(random, 32, 256, 1)
    x = tensor(batch, log_int(random, 4, 64), width)
    layers = Layers()
    rows = float(x.shape[0] * x.shape[1])
    if random.random() < LOOPED:
        # Calls of a cell cost time of their own, which counts as if it were arithmetic.
        layers.add(
            Unrolled(CELLS[name](width, hidden)),
            nn.Linear(hidden, log_int(random, 1, 32)),
            flops=8.0 * rows * hidden * (width + hidden) + PER_STEP * x.shape[1],
            elements=10 * rows * hidden,
        )
        return layers, x.transpose(0, 1).contiguous()
    layer = RECURRENT[name](width, hidden, num_layers=depth, bidirectional=both, batch_first=True)
    flops = 8.0 * rows * hidden * (width + hidden * (2 * depth - 1)) * (1 + both)
    layers.add(LastOutput(layer), flops=flops, elements=10 * rows * hidden)
    layers.add(nn.Linear(hidden * (1 + both), log_int(random, 1, 32)))
    return layers, x


class MessagePassing(nn.Module):
    """Adds a linear map of all nodes with an edge to a node, over a fixed random edge list."""

    def __init__(self, nodes: int, edges: int, width: int) -> None:
        super().__init__()
        self.register_buffer("edges", torch.randint(0, nodes, (2, edges)))
        self.linear = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        source, target = self.get_buffer("edges")
        messages = self.linear(x)[source]
        return x + torch.zeros_like(x).index_add(0, target, messages)


def graph(random: Random) -> tuple[Layers, Tensor]:
    """One to three rounds of messages, and a linear head on every node."""
    nodes, width = log_int(random, 16, 4096), log_int(random, 4, 128)
    edges = log_int(random, nodes, 8 * nodes)
    layers = Layers()
    for _ in range(random.choice((1, 2, 3))):
        round_of, activation = MessagePassing(nodes, edges, width), random.choice(ACTIVATIONS)()
        layers.add(round_of, activation, flops=2.0 * nodes * width * width, elements=4.0 * edges * width)
    layers.add(nn.Linear(width, 8))
    return layers, tensor(nodes, width)


#: Share of solvers that keep the time in tensors.
CLOCKED = 0.5


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

    def _step(self, x: Tensor, step: float | Tensor) -> Any:
        weights = self.get_buffer("weights")
        slopes = [self.field(x)]
        while len(slopes) < self.stages:
            slopes.append(self.field(x + step * slopes[-1]))
        if self.stacked:
            return x + (torch.stack(slopes, -1) * weights).sum(-1)
        return x + sum(weight * slope for weight, slope in zip(weights, slopes, strict=True))


def solver(random: Random) -> tuple[Layers, Tensor]:
    """A solver with a fixed number of steps, of one to six stages each."""
    width, hidden = log_int(random, 1, 64), log_int(random, 4, 256)
    batch = 1 if random.random() < 2 * ALONE else log_int(random, 1, 256)
    steps, stages = log_int(random, 1, 64), random.randint(1, 6)
    field = nn.Sequential(nn.Linear(width, hidden), random.choice(USUAL_ACTIVATIONS)(), nn.Linear(hidden, width))
    layers = Layers()
    evaluations = float(steps * stages)
    layers.add(
        Iterated(field, steps, stages, stacked=random.random() < 0.5, clocked=random.random() < CLOCKED),
        flops=evaluations * (4.0 * batch * width * hidden + PER_STEP),
        elements=evaluations * batch * (2 * hidden + 4 * width),
    )
    return layers, tensor(*(() if batch == 1 and random.random() < 0.5 else (batch,)), width)
