"""Reductions, softmax and losses; sorting and scans."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import torch.nn.functional as F
from torch import Tensor

from placer.calibration.benchmarks.losses import LOSSES
from placer.calibration.benchmarks.probe import MOST_ELEMENTS, Apply, Branch, Limit, Probe, block, log_int, tensor

FUNCTIONS: dict[str, Callable[[Tensor], object]] = {
    "softmax": lambda x: x.softmax(-1), "log_softmax": lambda x: x.log_softmax(-1),
    "softmax_outer": lambda x: x.softmax(0), "sum_all": lambda x: x.sum(), "sum_inner": lambda x: x.sum(-1),
    "sum_outer": lambda x: x.sum(0), "mean": lambda x: x.mean(-1), "mean_all": lambda x: x.mean(),
    "amax": lambda x: x.amax(-1), "max": lambda x: x.max(-1).values, "amin_outer": lambda x: x.amin(0),
    "argmax": lambda x: x.argmax(-1), "var": lambda x: x.var(-1), "std": lambda x: x.std(0), "norm": lambda x: x.norm(),
    "logsumexp": lambda x: x.logsumexp(-1), "cumsum": lambda x: x.cumsum(-1),
    "topk": lambda x: x.topk(min(2, x.shape[-1]), -1).values, "sort": lambda x: x.sort(-1).values,
    **{name: LOSSES[name] for name in ("mse", "smooth_l1", "cross_entropy", "bce")}, "any": lambda x: (x > 0).any(),
    "normalize": lambda x: F.normalize(x, dim=-1), "softmax_mask": lambda x: x.masked_fill(x > 2, -1e9).softmax(-1),
    "cumsum_outer": lambda x: x.cumsum(0), "argsort": lambda x: x.argsort(-1), "prod": lambda x: x.prod(-1),
}  # fmt: skip


#: Far more work per element than the others, FLOPs.
WITHOUT_GRADIENT = ("argmax", "any", "argsort")
SLOW = {"sort": 200.0, "argsort": 200.0, "topk": 100.0, "cumsum": 20.0, "cumsum_outer": 20.0}


def propose(random: Random, limit: Limit) -> Probe:
    """A block of reductions, softmaxes, losses, sorts and scans on random shapes."""
    return block("reduction", random, limit, _draw, most=10)


def _draw(random: Random) -> Branch:
    name = random.choice(list(FUNCTIONS))
    numel = log_int(random, 16, MOST_ELEMENTS)
    columns = log_int(random, 2, max(2, min(8192, numel)))
    rows = max(numel // columns, 2)
    return Branch(
        f"{name} {rows}x{columns}",
        lambda: Apply(FUNCTIONS[name]),
        lambda grad: tensor(rows, columns, grad=grad),
        SLOW.get(name, 5.0) * rows * columns,
        8.0 * rows * columns,
        trains=name not in WITHOUT_GRADIENT,
    )
