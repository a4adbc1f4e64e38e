"""Reductions and losses; and, drawn among them, softmaxes, sorts and scans."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random

import torch.nn.functional as F
from torch import Tensor

from placer.calibration.benchmarks import softmax, sorting
from placer.calibration.benchmarks.losses import LOSSES
from placer.calibration.benchmarks.probe import Apply, Branch, Limit, Probe, block, log_int, tensor

FUNCTIONS: dict[str, Callable[[Tensor], object]] = {
    "sum_all": lambda x: x.sum(), "sum_inner": lambda x: x.sum(-1), "sum_outer": lambda x: x.sum(0),
    "mean": lambda x: x.mean(-1), "mean_all": lambda x: x.mean(), "amax": lambda x: x.amax(-1),
    "max": lambda x: x.max(-1).values, "amin_outer": lambda x: x.amin(0), "argmax": lambda x: x.argmax(-1),
    "var": lambda x: x.var(-1), "std": lambda x: x.std(0), "norm": lambda x: x.norm(),
    "logsumexp": lambda x: x.logsumexp(-1), "any": lambda x: (x > 0).any(), "prod": lambda x: x.prod(-1),
    "normalize": lambda x: F.normalize(x, dim=-1),
}  # fmt: skip
#: All that is drawn from. Another order would draw other probes.
DRAWN = (
    "softmax", "log_softmax", "softmax_outer", "sum_all", "sum_inner", "sum_outer", "mean", "mean_all", "amax", "max",
    "amin_outer", "argmax", "var", "std", "norm", "logsumexp", "cumsum", "topk", "sort", "mse", "smooth_l1",
    "cross_entropy", "bce", "any", "normalize", "softmax_mask", "cumsum_outer", "argsort", "prod",
)  # fmt: skip
WITHOUT_GRADIENT = ("argmax", "any", "argsort")
#: FLOPs per element.
USUAL_FLOPS = 5.0
_OF_ALL_FAMILIES = {**FUNCTIONS, **LOSSES, **softmax.FUNCTIONS, **sorting.FUNCTIONS}


def propose(random: Random, limit: Limit) -> Probe:
    """A block of reductions, softmaxes, losses, sorts and scans on random shapes."""
    return block("reduction", random, limit, partial(_draw, limit=limit), most=10)


def _draw(random: Random, limit: Limit) -> Branch:
    name = random.choice(DRAWN)
    numel = log_int(random, 16, limit.most_elements)
    columns = log_int(random, 2, max(2, min(8192, numel)))
    rows = max(numel // columns, 2)
    return Branch(
        f"{name} {rows}x{columns}",
        lambda: Apply(_OF_ALL_FAMILIES[name]),
        lambda grad: tensor(rows, columns, grad=grad),
        sorting.FLOPS.get(name, USUAL_FLOPS) * rows * columns,
        8.0 * rows * columns,
        trains=name not in WITHOUT_GRADIENT,
    )
