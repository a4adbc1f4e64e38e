"""Random networks: layers of every kind, in sequence and in branches, that fit on one another."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import torch
from torch import Tensor, nn

Shape = tuple[int, ...]
#: A layer and the shape it makes, without the batch.
Made = tuple[nn.Module, Shape]


class Residual(nn.Module):
    def __init__(self, inner: nn.Module, scale: bool) -> None:
        super().__init__()
        self.inner = inner
        self.scale = nn.Parameter(torch.ones(1)) if scale else None

    def forward(self, x: Tensor) -> Tensor:
        y = self.inner(x)
        return x + (y if self.scale is None else y * self.scale)


class Branches(nn.Module):
    def __init__(self, branches: list[nn.Module], dim: int) -> None:
        super().__init__()
        self.branches, self.dim = nn.ModuleList(branches), dim

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([branch(x) for branch in self.branches], self.dim)


class First(nn.Module):
    """The first output of a layer that has several."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.inner(x)[0]
        return found


class SelfAttention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.inner = nn.MultiheadAttention(width, heads, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.inner(x, x, x, need_weights=False)[0]
        return found


class Function(nn.Module):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def forward(self, x: Tensor) -> Tensor:
        return FUNCTIONS[self.name](x)


FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "softmax": lambda x: torch.softmax(x, -1),
    "sort": lambda x: torch.sort(x, -1)[0],
    "cumsum": lambda x: torch.cumsum(x, -1),
    "norm": lambda x: x / (1.0 + x.norm(dim=-1, keepdim=True)),
    "where": lambda x: torch.where(x > 0, x, 0.1 * x),
    "clamp": lambda x: x.clamp(-1, 1) * 2 + 1,
    "fft": lambda x: torch.fft.rfft(x, dim=-1).abs().sum(-1, keepdim=True) + x,
    "centre": lambda x: x - x.mean(-1, keepdim=True),
    "flip": lambda x: x.flip(-1) + x.roll(1, -1),
    "chunk": lambda x: torch.cat(x.split(1, -1)[::-1], -1),
    "exp": lambda x: torch.log1p(torch.exp(-x.abs())),
    "mask": lambda x: x.masked_fill(x < 0, 0.0),
}
ACTIVATIONS = (nn.ReLU, nn.GELU, nn.SiLU, nn.Tanh, nn.Sigmoid, nn.ELU, nn.Mish, nn.Softplus, nn.Hardswish, nn.PReLU)
WIDTHS = (1, 2, 3, 4, 8, 12, 16, 24, 33)


def random_module(random: Random) -> tuple[nn.Module, Shape]:
    """A network and the shape of one input, without the batch: features, a sequence, or an image."""
    shape: Shape = random.choice(
        [
            (random.choice(WIDTHS),),
            (random.choice((1, 2, 5, 9)), random.choice(WIDTHS)),
            (random.choice((1, 3, 4)), random.choice((1, 4, 7, 12)), random.choice((1, 4, 8))),
        ]
    )
    layers = []
    now = shape
    for _ in range(random.randint(1, 7)):
        layer, now = _layer(random, now, depth=0)
        layers.append(layer)
    if random.random() < 0.5:
        layers += [nn.Flatten(), nn.Linear(_size(now), random.choice(WIDTHS))]
    return nn.Sequential(*layers), shape


def _layer(random: Random, shape: Shape, depth: int) -> Made:
    anything = [_activation, _function, _linear, _dropout, _layer_norm]
    of_kind = {
        1: [_batch_norm],
        2: [_recurrent, _attention, _encoder, _convolution, _flat],
        3: [
            _convolution,
            _pooling,
            _group_norm,
            _batch_norm,
            _flat,
        ],
    }[len(shape)]
    if depth < 2:
        anything += [_residual, _branches]
    made: Made = random.choice([*anything, *of_kind, *of_kind])(random, shape, depth)
    return made


def _activation(random: Random, shape: Shape, depth: int) -> Made:
    return random.choice(ACTIVATIONS)(), shape


def _function(random: Random, shape: Shape, depth: int) -> Made:
    return Function(random.choice(sorted(FUNCTIONS))), shape


def _linear(random: Random, shape: Shape, depth: int) -> Made:
    width = random.choice(WIDTHS)
    return nn.Linear(shape[-1], width, bias=random.random() < 0.7), (*shape[:-1], width)


def _dropout(random: Random, shape: Shape, depth: int) -> Made:
    return nn.Dropout(random.choice((0.0, 0.1, 0.5))), shape


def _layer_norm(random: Random, shape: Shape, depth: int) -> Made:
    return nn.LayerNorm(shape[-1]), shape


def _batch_norm(random: Random, shape: Shape, depth: int) -> Made:
    kind = nn.BatchNorm1d if len(shape) == 1 else nn.BatchNorm2d
    return kind(shape[0], affine=random.random() < 0.8), shape


def _group_norm(random: Random, shape: Shape, depth: int) -> Made:
    return nn.GroupNorm(random.choice([n for n in (1, 2, 3, 4) if shape[0] % n == 0]), shape[0]), shape


def _recurrent(random: Random, shape: Shape, depth: int) -> Made:
    width, both = random.choice(WIDTHS), random.random() < 0.3
    kind = random.choice((nn.LSTM, nn.GRU, nn.RNN))
    layer = kind(shape[1], width, random.randint(1, 2), batch_first=True, bidirectional=both)
    return First(layer), (shape[0], width * (1 + both))


def _attention(random: Random, shape: Shape, depth: int) -> Made:
    return SelfAttention(shape[1], random.choice([n for n in (1, 2, 4) if shape[1] % n == 0])), shape


def _encoder(random: Random, shape: Shape, depth: int) -> Made:
    heads = random.choice([n for n in (1, 2, 4) if shape[1] % n == 0])
    norm_first = random.random() < 0.5
    return nn.TransformerEncoderLayer(shape[1], heads, 16, batch_first=True, norm_first=norm_first), shape


def _convolution(random: Random, shape: Shape, depth: int) -> Made:
    groups = random.choice([n for n in (1, 1, 2, shape[0]) if shape[0] % n == 0])
    out = groups * random.randint(1, 6)
    kernel, dilation = random.choice((1, 3)), random.choice((1, 1, 2))
    kind = nn.Conv1d if len(shape) == 2 else nn.Conv2d
    stride = random.choice((1, 1, 2))
    layer = kind(shape[0], out, kernel, stride, padding=dilation * (kernel // 2), dilation=dilation, groups=groups)
    return layer, (out, *(-(-size // stride) for size in shape[1:]))


def _pooling(random: Random, shape: Shape, depth: int) -> Made:
    if min(shape[1:]) < 2 or random.random() < 0.3:
        return nn.AdaptiveAvgPool2d(2), (shape[0], 2, 2)
    return random.choice((nn.MaxPool2d, nn.AvgPool2d))(2), (shape[0], shape[1] // 2, shape[2] // 2)


def _flat(random: Random, shape: Shape, depth: int) -> Made:
    return nn.Flatten(), (_size(shape),)


def _residual(random: Random, shape: Shape, depth: int) -> Made:
    for _ in range(5):
        inner, made = _layer(random, shape, depth + 1)
        if made == shape:
            return Residual(inner, random.random() < 0.3), shape
    return nn.Identity(), shape


def _branches(random: Random, shape: Shape, depth: int) -> Made:
    """Branches that end in the same shape but for the last dimension."""
    branches, width = [], 0
    for _ in range(random.randint(1, 3)):
        layer, made = _linear(random, shape, depth)
        branches.append(nn.Sequential(layer, _activation(random, made, depth)[0]))
        width += made[-1]
    return Branches(branches, -1), (*shape[:-1], width)


def _size(shape: Shape) -> int:
    size = 1
    for n in shape:
        size *= n
    return size
