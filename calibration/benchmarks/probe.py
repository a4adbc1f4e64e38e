"""What calibration measures: a small module with inputs, run as a real step.

A probe is either a *block* (independent branches, one op of a family each, to learn the op) or a generated *network*
(random layers in sequence, to learn what composition adds). Both are ordinary modules: they are traced, run and priced
by the code that serves users.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import Any, Literal

import torch
from torch import Tensor, nn

from placer.nest import map_nest
from placer.workload import Workload

#: Elements of the largest operands, 64 MB: what a layer of a convolutional network writes on a large batch.
MOST_ELEMENTS = 1 << 24
HALVES = (torch.bfloat16, torch.float16)


@dataclass(frozen=True)
class Accelerator:
    """What is drawn for an accelerator in place of what is drawn for a CPU.

    ``slower`` has each dtype that the device multiplies matrices in, by how much longer a FLOP takes in it than in
    float32. ``most_elements`` are those of the largest operands: far more than any cache holds, as people use there.
    """

    slower: Mapping[str, float]
    most_elements: int = MOST_ELEMENTS

    @property
    def halves(self) -> list[torch.dtype]:
        """The half-precision dtypes it has."""
        return [dtype for dtype in HALVES if name_of(dtype) in self.slower]


@dataclass(frozen=True)
class Limit:
    """Most arithmetic (FLOPs) and memory traffic (bytes) one step of a probe may take, forward only.

    ``branch``: the most traffic (bytes) of one branch of a block, whatever the limit of all. ``accelerator``: what the
    probe is for; None: a CPU.
    """

    flops: float
    bytes: float
    branch: float = math.inf
    accelerator: Accelerator | None = None

    def share(self, part: float) -> Limit:
        return replace(self, flops=self.flops * part, bytes=self.bytes * part)

    @property
    def most_elements(self) -> int:
        """Elements of the largest operands."""
        return self.accelerator.most_elements if self.accelerator is not None else MOST_ELEMENTS

    def has(self, dtype: str) -> bool:
        """Whether the device computes in this dtype, other than float32; Apple's have no float64."""
        return self.accelerator is None or dtype in self.accelerator.slower

    def taken(self, flops: float, moved: float) -> float:
        """The share of this limit that both together take: a step half arithmetic and half traffic takes both times."""
        return flops / self.flops + moved / self.bytes

    def admits(self, flops: float, moved: float) -> bool:
        """Whether both together fit."""
        return moved <= self.branch and self.taken(flops, moved) <= 1.0


@dataclass(frozen=True)
class Probe:
    """One thing to measure: ``build`` makes the module, ``example`` its positional inputs, on the default device.

    ``loss`` is of the module's output; None: the sum of it. ``fused``: the optimizer updates in one kernel.
    """

    family: str
    name: str
    build: Callable[[], nn.Module]
    example: Callable[[], tuple[Any, ...]]
    mode: Literal["train", "infer"]
    optimizer: str | None = None
    loss: Callable[[Any], Tensor | None] | None = None
    fused: bool = False


@dataclass(frozen=True)
class Branch:
    """One op of a block at one shape: ``build`` makes its module in float32, which runs in ``dtype``.

    Its input has this ``shape``: normal random numbers, or what is ``made`` of them. ``flops`` and ``bytes`` are rough,
    forward only; ``trains`` is False for what has no gradient. ``slower``: how many times as long as in float32 a FLOP
    takes in its dtype, where ``flops`` counts that.
    """

    name: str
    build: Callable[[], nn.Module]
    shape: tuple[int, ...]
    flops: float
    bytes: float
    dtype: torch.dtype = torch.float32
    made: Callable[[Tensor], Tensor] | None = None
    trains: bool = True
    slower: float = 1.0

    def example(self, grad: bool) -> Tensor:
        """An input, which needs a gradient or not; whole numbers have none."""
        numbers = tensor(*self.shape, dtype=self.dtype)
        made = numbers if self.made is None else self.made(numbers)
        return made.requires_grad_(grad and made.is_floating_point())

    def in_half(self, dtype: torch.dtype, slower: float) -> Branch:
        """The same with its parameters and its input in ``dtype``, in which a FLOP takes so many times as long."""
        return replace(
            self,
            name=f"{self.name} {name_of(dtype)}",
            dtype=dtype,
            flops=self.flops / self.slower * slower,
            bytes=self.bytes / 2,
            slower=slower,
        )

    def module(self, inner: bool) -> nn.Module:
        """Its module, as another layer follows it (``inner``) or as the last."""
        module = self.build().to(self.dtype)
        return Inner(module) if inner else module


class Parallel(nn.Module):
    """Independent branches, one input each: no branch finds its operands warm because another just made them."""

    def __init__(self, branches: Sequence[nn.Module]) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, *inputs: Tensor) -> list[Any]:
        return [branch(x) for branch, x in zip(self.branches, inputs, strict=True)]


class Inner(nn.Module):
    """A layer as it stands inside a network: another one follows.

    The gradient of a sum is one number expanded to many. An op that is the last before its loss gets that, and some
    kernels copy it first, or are not made for it; every other op of a network gets a gradient of its output's size.
    """

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Any:
        return map_nest(_scaled, self.layer(x))


def _scaled(leaf: Any) -> Any:
    return leaf * 0.5 if isinstance(leaf, Tensor) and leaf.requires_grad else leaf


class Apply(nn.Module):
    """A function of tensors as a module, so that ops without a layer can stand in a probe."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Tensor) -> Any:
        return self.function(*inputs)


def step_of(
    module: nn.Module,
    operands: tuple[Any, ...],
    *,
    loss: Callable[..., Any] | None = None,
    optimizer: str | torch.optim.Optimizer | None = None,
    trains: bool = False,
) -> Workload:
    """A step of a module on operands that are where it runs; it trains or infers."""
    mode: Literal["train", "infer"] = "train" if trains else "infer"
    return Workload(module, (module,), operands, mode=mode, loss=loss, optimizer=optimizer, data="device")


class WithParameter(nn.Module):
    """A function of the input and a trainable tensor."""

    def __init__(self, function: Callable[[Tensor, Tensor], Tensor], shape: tuple[int, ...]) -> None:
        super().__init__()
        self.function = function
        self.parameter = nn.Parameter(torch.randn(shape))

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x, self.parameter)


Draw = Callable[[Random, Limit], Branch]

#: Share of an accelerator's branches in half precision, where the device has any.
HALF = 0.5
#: Share of the branches that are trained as layers inside a network are.
INNER = 0.8
#: Times a shape is drawn again before a smaller limit is given up on.
DRAWS = 200
#: Branches that fit, of which the largest is taken.
CANDIDATES = 5
#: Shares of a step's limit that one branch may take, every octave between them equally likely: real steps spend their
#: time in ops of microseconds as well as in ops a thousand times longer.
LEAST_PART, MOST_PART = 3e-4, 0.6


def block(
    random: Random, limit: Limit, *, family: str, draw: Draw, most: int = 16, training: float = 0.6, halves: bool = True
) -> Probe:
    """A probe of up to ``most`` branches of different shapes, small and large, whose step stays within ``limit``.

    On an accelerator half of them run in half precision, unless the family's ops are not made for it (``halves``).
    """
    train = random.random() < training
    room = limit.share(1 / 3) if train else limit
    left = 1.0
    branches: list[Branch] = []
    for _ in range(random.randint(1, most)):
        part = min(log_uniform(random, LEAST_PART, MOST_PART), left)
        dtype = None
        if halves and limit.accelerator is not None and limit.accelerator.halves and random.random() < HALF:
            dtype = random.choice(limit.accelerator.halves)
        branch = _drawn(random, draw, limit, dtype, room.share(part), train)
        if branch is None:
            continue
        branches.append(branch)
        left -= room.taken(branch.flops, branch.bytes)
        if left < LEAST_PART:
            break
    if not branches:  # nothing was small enough: the smallest of a few is
        branches = [min((draw(random, limit) for _ in range(20)), key=lambda b: limit.taken(b.flops, b.bytes))]
        train = train and branches[0].trains
    gradients = [train and random.random() < 0.65 for _ in branches]
    if train and not any(gradients):
        gradients[0] = True
    inner = [train and random.random() < INNER for _ in branches]
    return Probe(
        family=family,
        name=", ".join(branch.name for branch in branches),
        build=partial(_modules, branches, inner),
        example=partial(_examples, branches, gradients),
        mode="train" if train else "infer",
    )


def _modules(branches: Sequence[Branch], inner: Sequence[bool]) -> nn.Module:
    return Parallel([branch.module(followed) for branch, followed in zip(branches, inner, strict=True)])


def _examples(branches: Sequence[Branch], gradients: Sequence[bool]) -> tuple[Tensor, ...]:
    return tuple(branch.example(grad) for branch, grad in zip(branches, gradients, strict=True))


def _drawn(
    random: Random, draw: Draw, limit: Limit, dtype: torch.dtype | None, allowed: Limit, train: bool
) -> Branch | None:
    """The largest of some branches that fit: of random shapes most are far smaller than what they may be."""
    fitting: list[Branch] = []
    for _ in range(DRAWS):
        branch = draw(random, limit)
        if dtype is not None and limit.accelerator is not None:
            branch = branch.in_half(dtype, limit.accelerator.slower[name_of(dtype)])
        if allowed.admits(branch.flops, branch.bytes) and (branch.trains or not train):
            fitting.append(branch)
            if len(fitting) == CANDIDATES:
                break
    return max(fitting, key=lambda b: allowed.taken(b.flops, b.bytes), default=None)


def name_of(dtype: torch.dtype) -> str:
    """What profiles call a dtype."""
    return str(dtype).removeprefix("torch.")


def log_uniform(random: Random, low: float, high: float) -> float:
    """A number between ``low`` and ``high`` (both > 0), every octave equally likely."""
    return math.exp(random.uniform(math.log(low), math.log(high)))


def log_int(random: Random, low: int, high: int) -> int:
    """An integer between ``low`` and ``high``, every octave equally likely; often a round number, as people choose."""
    value = log_uniform(random, low, high)
    habit = random.random()
    if habit < 0.45:
        value = 2.0 ** round(math.log2(value))
    elif habit < 0.65:
        value = 8.0 * round(value / 8.0) if value >= 12.0 else value
    return max(low, min(high, round(value)))


def widths(random: Random, low: int, high: int, count: int) -> list[int]:
    """``count`` sizes of one layer: half of the time all are multiples of 16, as in most networks; otherwise any."""
    if random.random() < 0.5:
        return [16 * round(log_uniform(random, max(low, 16), high) / 16) for _ in range(count)]
    return [log_int(random, low, high) for _ in range(count)]


def tensor(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Normal random values: timing on zeros or denormals lies."""
    return torch.randn(shape, dtype=torch.float32).to(dtype)
