"""Random networks: what composition adds, learnt from whole steps.

Depth, width, kind of layer, activation, normalization, batch and mode are drawn at random. No network of the validation
suite is ever built here: a model fitted on what it is scored with would only remember.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random

import torch
from torch import Tensor, nn

from placer.calibration.benchmarks.losses import DRAWN, loss_named
from placer.calibration.benchmarks.matmul import MatrixVector
from placer.calibration.benchmarks.parts import (
    InParts,
    Iterated,
    MessagePassing,
    Pieces,
    Recurrent,
    Residual,
    SelfAttention,
    Tokens,
)
from placer.calibration.benchmarks.probe import Limit, Probe, log_int, log_uniform, tensor, widths
from placer.calibration.benchmarks.recurrent import BATCHED, CELLS, LAYERS, PER_STEP, Unrolled
from placer.calibration.benchmarks.wrappers import wrap

ACTIVATIONS: tuple[Callable[[], nn.Module], ...] = (
    nn.ReLU, nn.ReLU, nn.ReLU, nn.GELU, nn.SiLU, nn.Tanh, nn.Mish, nn.ELU, nn.Sigmoid, nn.LeakyReLU,
    nn.Softplus, nn.Hardswish,
)  # fmt: skip
#: Share of networks that are given a single sample, as policies, solvers and servers are.
ALONE = 0.2
#: Share of plain networks that work on one part of their batch after the other.
IN_PARTS = 0.1
#: Share of recurrent networks whose cell is called in a Python loop.
LOOPED = 0.3
#: Share of solvers that keep the time in tensors.
CLOCKED = 0.5
OPTIMIZERS = ("adam", "adam", "adam", "adamw", "sgd", "rmsprop")


class Layers(list[nn.Module]):
    """Layers in sequence, with a rough count of a forward pass: FLOPs, and bytes of what is written."""

    flops = 0.0
    bytes = 0.0

    def add(self, *modules: nn.Module, flops: float = 0.0, elements: float = 0.0) -> None:
        """Append ``modules``, which together take ``flops`` and each write ``elements`` float32 numbers."""
        self.extend(modules)
        self.flops += flops
        self.bytes += 4.0 * elements * len(modules)


def _mlp(random: Random) -> tuple[Layers, Tensor]:
    batch = 1 if random.random() < ALONE else log_int(random, 1, 8192)
    width = log_int(random, 1, 512)
    x = tensor(batch, width)
    activation = random.choice(ACTIVATIONS)
    extra = random.random()
    layers = Layers()
    sizes = widths(random, 4, 2048, log_int(random, 1, 12))
    hidden = sizes[0]
    for following in sizes:
        layers.add(
            nn.Linear(width, hidden, bias=random.random() < 0.9),
            flops=2.0 * batch * width * hidden,
            elements=batch * hidden + width * hidden,
        )
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


def _single(random: Random) -> tuple[Layers, Tensor]:
    """One layer and nothing else: what a step of a few microseconds is made of."""
    width, hidden = log_int(random, 1, 512), log_int(random, 1, 512)
    layer = random.choice((
        nn.Linear(width, hidden), nn.Linear(width, hidden, bias=False), MatrixVector(hidden, width, torch.float32),
        nn.LayerNorm(width), nn.PReLU(),
    ))  # fmt: skip
    rows = () if isinstance(layer, MatrixVector) else (log_int(random, 1, 64),)
    layers = Layers()
    layers.add(layer, flops=2.0 * math.prod(rows) * width * hidden, elements=width * hidden)
    return layers, tensor(*rows, width)


def _small(random: Random) -> tuple[Layers, Tensor]:
    """A few narrow layers on few rows, as policies and solvers call a thousand times: all of it stays in the caches."""
    batch, width = log_int(random, 1, 64), log_int(random, 1, 256)
    x = tensor(batch, width)
    activation = random.choice(ACTIVATIONS[:6])
    layers = Layers()
    for _ in range(random.randint(1, 4)):
        hidden = log_int(random, 2, 512)
        layers.add(nn.Linear(width, hidden), activation(), flops=2.0 * batch * width * hidden, elements=width * hidden)
        width = hidden
    layers.add(nn.Linear(width, log_int(random, 1, 16)))
    return layers, x


def _cnn(random: Random) -> tuple[Layers, Tensor]:
    dims = random.choice((1, 2, 2))
    conv: type[nn.Conv1d] | type[nn.Conv2d] = nn.Conv1d if dims == 1 else nn.Conv2d
    norm: type[nn.BatchNorm1d] | type[nn.BatchNorm2d] = nn.BatchNorm1d if dims == 1 else nn.BatchNorm2d
    pool: type[nn.MaxPool1d] | type[nn.MaxPool2d] = nn.MaxPool1d if dims == 1 else nn.MaxPool2d
    channels = random.choice((1, 1, 3, 3, 4, 16))
    side = log_int(random, 16, 1024) if dims == 1 else log_int(random, 8, 128)
    batch = 1 if random.random() < ALONE else log_int(random, 1, 512 if dims == 1 else 64)
    x = tensor(batch, channels, *(side,) * dims)
    layers = Layers()
    width = log_int(random, 4, 128)
    activation = random.choice(ACTIVATIONS)
    normalized, bottleneck = random.random() < 0.5, random.random() < 0.3
    separable = 0.7 if random.random() < 0.2 else 0.1
    # Channels double wherever the image is halved, until they are many on few positions.
    staged = random.random() < 0.4
    for _ in range(log_int(random, 1, 12 if staged else 8)):
        points = float(batch * side**dims)
        if bottleneck and channels == width:
            inner = max(width // 4, 1)
            body = (
                conv(width, inner, 1, bias=False), norm(inner), activation(),
                conv(inner, inner, 3, padding=1, bias=False), norm(inner), activation(), conv(inner, width, 1),
            )  # fmt: skip
            layers.add(
                Residual(nn.Sequential(*body)),
                flops=2.0 * points * inner * (2 * width + 3**dims * inner),
                elements=points * (6 * inner + 2 * width),
            )
        elif random.random() < separable and channels > 3:
            layers.add(conv(channels, channels, 3, padding=1, groups=channels), conv(channels, width, 1),
                       flops=2.0 * points * channels * (3**dims + width), elements=points * width)  # fmt: skip
        elif random.random() < 0.3 and channels == width:
            layers.add(
                Residual(nn.Sequential(conv(width, width, 3, padding=1), activation())),
                flops=2.0 * points * width * width * 3**dims,
                elements=3 * points * width,
            )
        else:
            kernel = random.choice((1, 3, 3, 5))
            layers.add(
                conv(channels, width, kernel, padding="same"),
                flops=2.0 * points * channels * width * kernel**dims,
                elements=points * width + channels * width * kernel**dims,
            )
        channels = width
        if normalized:
            layers.add(norm(channels), elements=points * width)
        layers.add(activation(), elements=points * width)
        if side >= (2 if staged else 8) and random.random() < (0.6 if staged else 0.4):
            if random.random() < 0.6:
                layers.add(pool(2), elements=points * width / 2)
                side = side // 2
            else:
                side = (side + 1) // 2
                layers.add(
                    conv(channels, channels, 3, stride=2, padding=1),
                    flops=2.0 * batch * side**dims * width * width * 3**dims,
                )
            if staged or random.random() < 0.5:
                width = min(2 * width, 512)
    if random.random() < 0.3:
        layers.add(nn.Flatten(), nn.Linear(channels * side**dims, 10), flops=20.0 * batch * channels * side**dims)
    else:
        head: nn.Module = nn.AdaptiveAvgPool1d(1) if dims == 1 else nn.AdaptiveAvgPool2d(1)
        layers.add(
            head, nn.Flatten(), nn.Linear(channels, log_int(random, 1, 100)), flops=float(batch * channels * side**dims)
        )
    return layers, x


def _transformer(random: Random) -> tuple[Layers, Tensor]:
    heads = random.choice((1, 2, 4, 8))
    width = heads * random.choice((8, 16, 32, 64))
    batch = 1 if random.random() < ALONE else log_int(random, 1, 32)
    length = log_int(random, 4, 256)
    fused, factor = random.random() < 0.5, random.choice((2, 4))
    activation = random.choice(ACTIVATIONS[:6])
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
    if heads > 1 and random.random() < 0.25:  # torch's own layers, fused in inference
        for _ in range(log_int(random, 1, 6)):
            layers.add(
                nn.TransformerEncoderLayer(width, heads, factor * width, dropout=inner, batch_first=True),
                flops=tokens * width * (8.0 * width + 4.0 * factor * width + 4.0 * length),
                elements=tokens * (width * (4 + factor) + heads * length),
            )
        layers.add(nn.Linear(width, log_int(random, 1, 256)), flops=100.0 * tokens * width)
        return layers, x
    for _ in range(log_int(random, 1, 6)):
        feed: list[nn.Module] = [nn.Linear(width, factor * width), activation(), nn.Linear(factor * width, width)]
        attention: list[nn.Module] = [SelfAttention(width, heads, fused, inner)]
        if drop:
            feed.append(nn.Dropout(0.1))
            attention.append(nn.Dropout(0.1))
        layers.add(
            Residual(nn.Sequential(nn.LayerNorm(width), *attention)),
            Residual(nn.Sequential(nn.LayerNorm(width), *feed)),
            flops=tokens * width * (8.0 * width + 4.0 * factor * width + 4.0 * length),
            elements=tokens * width * (4 + factor),
        )
    layers.add(nn.Linear(width, log_int(random, 1, 256)), flops=100.0 * tokens * width)
    return layers, x


def _recurrent(random: Random) -> tuple[Layers, Tensor]:
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
        # Calls of a cell cost time of their own, which counts as if it were arithmetic (see ``recurrent.PER_STEP``).
        layers.add(
            Unrolled(CELLS[name](width, hidden)),
            nn.Linear(hidden, log_int(random, 1, 32)),
            flops=8.0 * rows * hidden * (width + hidden) + PER_STEP * x.shape[1],
            elements=10 * rows * hidden,
        )
        return layers, x.transpose(0, 1).contiguous()
    layer = LAYERS[name](width, hidden, num_layers=depth, bidirectional=both, batch_first=True)
    layers.add(
        Recurrent(layer),
        flops=8.0 * rows * hidden * (width + hidden * (2 * depth - 1)) * (1 + both),
        elements=10 * rows * hidden,
    )
    layers.add(nn.Linear(hidden * (1 + both), log_int(random, 1, 32)))
    return layers, x


def _graph(random: Random) -> tuple[Layers, Tensor]:
    nodes, width = log_int(random, 16, 4096), log_int(random, 4, 128)
    edges = log_int(random, nodes, 8 * nodes)
    layers = Layers()
    for _ in range(random.choice((1, 2, 3))):
        layers.add(
            MessagePassing(nodes, edges, width),
            random.choice(ACTIVATIONS)(),
            flops=2.0 * nodes * width * width,
            elements=4.0 * edges * width,
        )
    layers.add(nn.Linear(width, 8))
    return layers, tensor(nodes, width)


def _pieces(random: Random) -> tuple[Layers, Tensor]:
    width, batch = log_int(random, 2, 512), log_int(random, 1, 2048)
    layers = Layers()
    for _ in range(log_int(random, 1, 10)):
        layers.add(Pieces(width), flops=4.0 * batch * width * width, elements=12.0 * batch * width)
    return layers, tensor(batch, width)


def _solver(random: Random) -> tuple[Layers, Tensor]:
    width, hidden = log_int(random, 1, 64), log_int(random, 4, 256)
    batch = 1 if random.random() < 2 * ALONE else log_int(random, 1, 256)
    steps, stages = log_int(random, 1, 64), random.randint(1, 6)
    field = nn.Sequential(nn.Linear(width, hidden), random.choice(ACTIVATIONS[:6])(), nn.Linear(hidden, width))
    layers = Layers()
    evaluations = float(steps * stages)
    layers.add(
        Iterated(field, steps, stages, stacked=random.random() < 0.5, clocked=random.random() < CLOCKED),
        flops=evaluations * (4.0 * batch * width * hidden + PER_STEP),
        elements=evaluations * batch * (2 * hidden + 4 * width),
    )
    return layers, tensor(*(() if batch == 1 and random.random() < 0.5 else (batch,)), width)


#: Networks drawn before the smallest of them is taken, however small the limit; of so many that fit, the largest is:
#: most that are drawn are far smaller than what they may be, and where only small ones were seen, what a step's other
#: ops do to an op of a millisecond is a guess.
DRAWS, FITTING = 60, 2
#: Smallest share of the limit that a step may be held to.
LEAST_SHARE = 3e-4
KINDS = (
    _mlp, _mlp, _single, _small, _small, _cnn, _cnn, _transformer, _transformer, _recurrent, _graph, _pieces, _solver,
)  # fmt: skip


def _fitting(random: Random, kind: Callable[[Random], tuple[Layers, Tensor]], allowed: Limit) -> int:
    """The seed of the largest of ``FITTING`` networks of this kind that are allowed; of the smallest where none is."""
    taken: dict[int, float] = {}
    fit: list[int] = []
    for _ in range(DRAWS):
        seed = random.getrandbits(48)
        with torch.device("meta"):  # sizes only: no weight is drawn for a network that is too large
            layers, _ = kind(Random(seed))
        taken[seed] = allowed.taken(layers.flops, layers.bytes)
        if taken[seed] <= 1.0:
            fit.append(seed)
            if len(fit) == FITTING:
                break
    return max(fit, key=taken.__getitem__) if fit else min(taken, key=taken.__getitem__)


def propose(random: Random, limit: Limit) -> Probe:
    """A network whose step stays within ``limit``, of all sizes below it."""
    train = random.random() < 0.55
    allowed = limit.share(log_uniform(random, LEAST_SHARE, 1.0) / (3 if train else 1))
    kind = random.choice(KINDS)
    seed = _fitting(random, kind, allowed)
    # Python between the ops comes in all amounts: without it, an op's own share could not be told from a function's.
    depth = random.choice((0, 0, 0, 1, 2, 4))
    loss = random.choice(DRAWN) if train else ""

    def build() -> nn.Module:
        drawn = Random(seed)
        layers = wrap(kind(drawn)[0], depth, drawn)
        # Called as it is, one layer shows what a step costs beside the modules in it.
        return layers[0] if len(layers) == 1 else nn.Sequential(*layers)

    return Probe(
        family="network",
        name=f"{kind.__name__[1:]} {seed:x} {loss}".rstrip(),
        build=build,
        example=lambda: (kind(Random(seed))[1],),
        mode="train" if train else "infer",
        optimizer=random.choice(OPTIMIZERS) if train else None,
        loss=loss_named(loss),
    )
