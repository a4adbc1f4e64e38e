"""Draws a random network of any kind, as large as a limit allows."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import torch
from torch import Tensor, nn

from placer.calibration.benchmarks.losses import DRAWN, loss_named
from placer.calibration.benchmarks.networks.convolutional import cnn
from placer.calibration.benchmarks.networks.dense import mlp, pieces, single, small
from placer.calibration.benchmarks.networks.graph import graph
from placer.calibration.benchmarks.networks.layers import Layers
from placer.calibration.benchmarks.networks.recurrent import recurrent
from placer.calibration.benchmarks.networks.solver import solver
from placer.calibration.benchmarks.networks.transformer import transformer
from placer.calibration.benchmarks.networks.wrappers import wrap
from placer.calibration.benchmarks.probe import Limit, Probe, log_uniform

#: All kinds, as often as they are drawn. A network's name begins with that of its kind.
KINDS = (mlp, mlp, single, small, small, cnn, cnn, transformer, transformer, recurrent, graph, pieces, solver)
OPTIMIZERS = ("adam", "adam", "adam", "adamw", "sgd", "rmsprop")
#: Networks drawn before the smallest of them is taken, however small the limit; of so many that fit, the largest is:
#: most that are drawn are far smaller than what they may be, and where only small ones were seen, what a step's other
#: ops do to an op of a millisecond is a guess.
DRAWS, FITTING = 60, 2
#: Smallest share of the limit that a step may be held to.
LEAST_SHARE = 3e-4


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
        name=f"{kind.__name__} {seed:x} {loss}".rstrip(),
        build=build,
        example=lambda: (kind(Random(seed))[1],),
        mode="train" if train else "infer",
        optimizer=random.choice(OPTIMIZERS) if train else None,
        loss=loss_named(loss),
    )


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
