"""Elementwise ops: cheap and transcendental, contiguous and strided, in place, broadcast; copies and fills.

Random numbers are drawn among them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from placer.calibration.benchmarks import copies
from placer.calibration.benchmarks import random as random_numbers
from placer.calibration.benchmarks.probe import Branch, Limit, Probe, block, log_int, tensor

#: Functions of one tensor; the most used come first (see ``POPULAR``). Another order would draw other probes.
UNARY: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu, "gelu": F.gelu, "tanh": torch.tanh, "sigmoid": torch.sigmoid, "silu": F.silu,
    "scale": lambda x: x * 0.5, "by_row": lambda x: x * x[:, :1], "add_row": lambda x: x + x[:, :1],
    "dropout": random_numbers.FUNCTIONS["dropout"], "cat": lambda x: torch.cat([x, x], -1), "exp": torch.exp,
    "mish": F.mish, "leaky_relu": F.leaky_relu, "elu": F.elu, "pow2": lambda x: x**2,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"), "log": lambda x: (x * x + 1).log(),
    "softplus": F.softplus, "hardswish": F.hardswish, "sin": torch.sin,
    "cos": torch.cos, "sqrt": lambda x: (x * x + 1).sqrt(), "rsqrt": lambda x: (x * x + 1).rsqrt(),
    "pow3": lambda x: x**3, "abs": torch.abs, "neg": torch.neg,
    "clamp": lambda x: x.clamp(-1, 1), "reciprocal": lambda x: (x * x + 1).reciprocal(), "square": torch.square,
    "relu_": lambda x: F.relu_(x * 1.5), "tanh_": lambda x: (x * 1.5).tanh_(), "hardtanh": F.relu6,
    "hardsigmoid": F.hardsigmoid, "log_sigmoid": F.logsigmoid, "erf": torch.erf,
    "to64": lambda x: x.double(), "to16": lambda x: x.bfloat16(),
    "shift": lambda x: x + 1.0, "divide": lambda x: x / 3.0, "clone": torch.clone,
    "greater": lambda x: (x > 0).float() * x, "where": lambda x: torch.where(x > 0, x, -x),
    "masked_fill": lambda x: x.masked_fill(x > 1, 0.0), "noise": random_numbers.FUNCTIONS["noise"],
    "uniform": random_numbers.FUNCTIONS["uniform"], "zeros": lambda x: x + torch.zeros_like(x),
    "ones": lambda x: x * torch.ones_like(x), "transpose": lambda x: x.transpose(0, -1).contiguous(),
    "transposed_add": lambda x: x + x.transpose(0, -1), "strided": lambda x: x[..., ::2] * 2.0,
    "chunk": lambda x: torch.cat(x.chunk(2, -1)[::-1], -1),
    "stack": lambda x: torch.stack([x, x], 0), "pad": lambda x: F.pad(x, (1, 1)), "flip": lambda x: x.flip(-1),
    "roll": lambda x: x.roll(1, -1), "tril": torch.tril, "repeat": lambda x: x.repeat(2, 1),
    "glu": lambda x: F.glu(x[..., : x.shape[-1] // 2 * 2], -1), "add_": lambda x: (x * 2.0).add_(x),
    "windows2": copies.windows(2), "windows3": copies.windows(3), "windows5": copies.windows(5),
    "blocks2": copies.blocks(2), "blocks4": copies.blocks(4), "add_half_": copies.add_half_,
    "mul_": lambda x: (x + 1.0).mul_(x), "patches2": copies.patches(2, 1), "patches3": copies.patches(3, 1),
    "patches5": copies.patches(5, 1), "tiles2": copies.patches(2, 2), "tiles3": copies.patches(3, 3),
    "unpatched": copies.unpatched, "add_patches_": copies.add_patches_, "permuted": copies.permuted,
    "add_channels_": copies.add_channels_,
    "copy_": lambda x: torch.empty_like(x).copy_(x.detach()) + x,
    "masked": lambda x: x * (x > 0), "counted": lambda x: x - (x > 0).long(), "widened": lambda x: x + (x > 0).double(),
}  # fmt: skip

#: Functions of a tensor and a trainable one: the same shape, a row of it (a bias, a gain) or a single number.
BINARY: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": lambda x, p: x / (p * p + 1.0),
    "maximum": torch.maximum, "addcmul": lambda x, p: torch.addcmul(x, x, p),
    "lerp": lambda x, p: torch.lerp(x, p.expand_as(x), 0.3),
}  # fmt: skip
#: So many of the first functions fill most networks: half of the proposals are theirs.
POPULAR = 15
#: Functions whose result has another shape or dtype than their operand, or that want more than one row: not repeated.
ONCE = frozenset((
    "strided", "cat", "stack", "pad", "glu", "transpose", "repeat", "to64", "to16", "greater", "windows2", "windows3",
    "windows5", "blocks2", "blocks4", "patches2", "patches3", "patches5", "tiles2", "tiles3", "unpatched",
    "add_patches_", "add_channels_", "permuted", "widened",
))  # fmt: skip
#: How many times as large as its operand a result is, where that is a multiple.
COPIES = {"windows2": 2, "windows3": 3, "windows5": 5, "patches2": 4, "patches3": 9, "patches5": 25}
#: Share of branches of a few numbers or one, as solvers of equations and losses compute with: what an op costs at all.
FEW, MOST_OF_FEW = 0.1, 16
#: Functions of tensors of any shape, single numbers included.
OF_ANY_SHAPE = (
    "relu", "tanh", "sigmoid", "scale", "exp", "pow2", "log", "sin", "cos", "sqrt", "abs", "neg", "clamp", "square",
    "shift", "divide", "clone", "greater", "where", "add_", "mul_", "copy_", "zeros", "to64",
)  # fmt: skip
#: Functions that compute in float64.
WITH_FLOAT64 = ("to64", "widened")


class Repeated(nn.Module):
    """The function applied several times in a row: from the second on, its operand was just written, as in a net."""

    def __init__(self, function: Callable[[Tensor], Tensor], times: int) -> None:
        super().__init__()
        self.function, self.times = function, times

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(self.times):
            x = self.function(x)
        return x


class WithParameter(nn.Module):
    """A function of the input and a trainable tensor."""

    def __init__(self, function: Callable[[Tensor, Tensor], Tensor], shape: tuple[int, ...]) -> None:
        super().__init__()
        self.function = function
        self.parameter = nn.Parameter(torch.randn(shape))

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x, self.parameter)


def propose(random: Random, limit: Limit) -> Probe:
    """A block of elementwise ops, copies and random numbers on random shapes."""
    return block("elementwise", random, limit, partial(_draw, limit=limit), most=24)


def _draw(random: Random, limit: Limit) -> Branch:
    if random.random() < FEW:
        return _few(random, limit)
    numel = log_int(random, 16, limit.most_elements)
    columns = log_int(random, 2, max(2, min(4096, numel)))
    rows = max(numel // columns, 2)
    if random.random() < 0.25:
        name = random.choice(list(BINARY))
        parameter = random.choice(((columns,), (rows, columns), ()))
        return Branch(f"{name} {rows}x{columns} {parameter}", lambda: WithParameter(BINARY[name], parameter),
                      lambda grad: tensor(rows, columns, grad=grad), 0.0, 12.0 * rows * columns)  # fmt: skip
    names = [name for name in UNARY if limit.has_float64 or name not in WITH_FLOAT64]
    name = random.choice(names[:POPULAR] if random.random() < 0.5 else names)
    if name == "transposed_add":
        rows = columns = min(rows, columns)
    times = 1 if name in ONCE else random.choice((1, 3))
    moved = 16.0 * times * COPIES.get(name, 1) * rows * columns
    return Branch(f"{name} {rows}x{columns}", lambda: Repeated(UNARY[name], times),
                  lambda grad: tensor(rows, columns, grad=grad), 0.0, moved)  # fmt: skip


def _few(random: Random, limit: Limit) -> Branch:
    """A function of a vector of a few numbers, or of one alone; applied again and again, as step after step is."""
    numbers = log_int(random, 1, MOST_OF_FEW)
    shape = random.choice(((), (numbers,), (1, numbers)))
    if random.random() < 0.4:
        name = random.choice(list(BINARY))
        parameter = random.choice(((), shape))
        return Branch(f"{name} {shape} {parameter}", lambda: WithParameter(BINARY[name], parameter),
                      lambda grad: tensor(*shape, grad=grad), 0.0, 12.0 * numbers)  # fmt: skip
    name = random.choice([name for name in OF_ANY_SHAPE if limit.has_float64 or name not in WITH_FLOAT64])
    times = 1 if name in ONCE else random.choice((1, 4, 16))
    return Branch(f"{name} {shape}", lambda: Repeated(UNARY[name], times),
                  lambda grad: tensor(*shape, grad=grad), 0.0, 16.0 * times * numbers)  # fmt: skip
