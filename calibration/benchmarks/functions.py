"""What functions of tensors do: elementwise ops and copies, reductions, losses and sorts, lookups, linear algebra.

Functions are rows of tables, by name. To measure another one, add its row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from random import Random
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from placer.calibration.benchmarks.probe import Apply, Branch, Limit, WithParameter, log_int
from placer.workload import loss_of

Function = Callable[[Tensor], Any]


def named(*calls: tuple[Any, ...]) -> dict[str, Function]:
    """Functions of torch by name; what follows one in a row are its arguments after the tensor."""
    found: dict[str, Function] = {}
    for function, *arguments in calls:
        found[" ".join([function.__name__, *map(str, arguments)])] = _with(function, arguments)
    return found


def _with(function: Callable[..., Any], arguments: list[Any]) -> Function:
    def call(x: Tensor) -> Any:
        return function(x, *arguments)

    return call


def matrix(random: Random, limit: Limit, widest: int) -> tuple[int, int]:
    """Rows, at least two, and columns of a matrix with any number of elements."""
    numel = log_int(random, 16, limit.most_elements)
    columns = log_int(random, 2, max(2, min(widest, numel)))
    return max(numel // columns, 2), columns


def patches(side: int, step: int) -> Callable[[Tensor], Tensor]:
    """Every square of ``side`` elements as one row, ``step`` apart: convolution and pooling written out by hand."""

    def unfold(x: Tensor) -> Tensor:
        height, width = (min(side, n) for n in x.shape)
        return x.unfold(0, height, step).unfold(1, width, step).reshape(-1, height * width)

    return unfold


def add_patches_(x: Tensor) -> Tensor:
    """Overlapping patches of three by three added up where they came from: a convolution's gradient by hand."""
    columns = max(min(x.shape[1], x.numel() // 9), 1)
    rows = max(x.numel() // (9 * columns), 1)
    side = 3 if x.numel() >= 9 else 1
    squares = x.flatten()[: rows * columns * side**2].view(rows, columns, side, side)
    image = x.new_zeros(rows + side - 1, columns + side - 1)
    for i in range(side):
        for j in range(side):
            image[i : i + rows, j : j + columns] += squares[:, :, i, j]
    return image


def permuted(x: Tensor) -> Tensor:
    """Channels moved to the end, or from there."""
    images = min(4, x.shape[0])
    rows = x.shape[0] // images
    moved: Tensor = x[: images * rows].unflatten(0, (images, rows)).transpose(1, 2).contiguous()
    return moved


def gelu_tanh(x: Tensor) -> Tensor:
    """The approximation that GPT-2 has."""
    return F.gelu(x, approximate="tanh")


def above(x: Tensor) -> Tensor:
    """From 1 on: what roots and logarithms are taken of."""
    return x * x + 1.0


#: Functions of one tensor of any shape, single numbers included, whose result may be their operand again.
POINTWISE: Mapping[str, Function] = {
    **named(
        (F.relu,), (F.gelu,), (torch.tanh,), (torch.sigmoid,), (F.silu,), (torch.mul, 0.5), (F.dropout, 0.1),
        (torch.exp,), (F.mish,), (F.leaky_relu,), (F.elu,), (torch.pow, 2), (torch.pow, 3), (gelu_tanh,), (F.softplus,),
        (F.hardswish,), (F.relu6,), (F.hardsigmoid,), (F.logsigmoid,), (torch.sin,), (torch.cos,), (torch.erf,),
        (torch.abs,), (torch.neg,), (torch.clamp, -1, 1), (torch.add, 1.0), (torch.div, 3.0), (torch.clone,),
    ),
    "to64": Tensor.double,
    "to16": Tensor.bfloat16,
    "log": lambda x: above(x).log(),
    "sqrt": lambda x: above(x).sqrt(),
    "rsqrt": lambda x: above(x).rsqrt(),
    "reciprocal": lambda x: above(x).reciprocal(),
    "relu_": lambda x: F.relu_(x * 1.5),
    "tanh_": lambda x: (x * 1.5).tanh_(),
    "add_": lambda x: (x * 2.0).add_(x),
    "copy_": lambda x: torch.empty_like(x).copy_(x.detach()) + x,
    "greater": lambda x: (x > 0).to(x.dtype) * x,
    "where": lambda x: torch.where(x > 0, x, -x),
    "masked": lambda x: x * (x > 0),
    "masked_fill": lambda x: x.masked_fill(x > 1, 0.0),
    "counted": lambda x: x - (x > 0).long(),
    "widened": lambda x: x + (x > 0).double(),
    "noise": lambda x: x + torch.randn_like(x),
    "uniform": lambda x: x + torch.rand_like(x),
    "zeros": lambda x: x + torch.zeros_like(x),
}  # fmt: skip
#: Functions of a matrix. Most have a result of another shape.
OF_MATRICES: Mapping[str, Function] = {
    **named(
        (F.pad, (1, 1)), (torch.flip, (-1,)), (torch.roll, 1, -1), (torch.tril,), (Tensor.repeat, 2, 1), (permuted,),
        (add_patches_,),
    ),
    "by_row": lambda x: x * x[:, :1],
    "add_row": lambda x: x + x[:, :1],
    "cat": lambda x: torch.cat([x, x], -1),
    "stack": lambda x: torch.stack([x, x], 0),
    "chunk": lambda x: torch.cat(x.chunk(2, -1)[::-1], -1),
    "transpose": lambda x: x.transpose(0, -1).contiguous(),
    "strided": lambda x: x[..., ::2] * 2.0,
    "glu": lambda x: F.glu(x[..., : x.shape[-1] // 2 * 2], -1),
    "patches2": patches(2, 1),
    "patches3": patches(3, 1),
    "patches5": patches(5, 1),
    "tiles2": patches(2, 2),
    "tiles3": patches(3, 3),
}  # fmt: skip
#: Those that fill most networks: half of the proposals are theirs.
USUAL = (*list(POINTWISE)[:12], "by_row", "add_row", "cat")
#: How many times as large as its operand a result is, where that is a multiple; and what computes in float64.
COPIES = {"patches2": 4, "patches3": 9, "patches5": 25}
WITH_FLOAT64 = ("to64", "widened")
#: Functions of a tensor and a trainable one: the same shape, a row of it (a bias, a gain) or a single number.
BINARY: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": lambda x, p: x / (p * p + 1.0),
    "maximum": torch.maximum,
    "addcmul": lambda x, p: torch.addcmul(x, x, p),
    "lerp": lambda x, p: torch.lerp(x, p.expand_as(x), 0.3),
}
#: Share of branches of a few numbers or one, as solvers of equations and losses compute with: what an op costs at all.
FEW, MOST_OF_FEW = 0.1, 16


class Repeated(nn.Module):
    """The function applied several times in a row: from the second on, its operand was just written, as in a net."""

    def __init__(self, function: Function, times: int) -> None:
        super().__init__()
        self.function, self.times = function, times

    def forward(self, x: Tensor) -> Any:
        for _ in range(self.times):
            x = self.function(x)
        return x


def draw_elementwise(random: Random, limit: Limit) -> Branch:
    """An elementwise op, a copy or random numbers on a random shape; or on a few numbers, again and again."""
    few = random.random() < FEW
    shape: tuple[int, ...] = matrix(random, limit, 4096)
    if few:
        numbers = log_int(random, 1, MOST_OF_FEW)
        shape = random.choice(((), (numbers,), (1, numbers)))
    if random.random() < 0.25:
        name, parameter = random.choice(list(BINARY)), random.choice((shape[1:], shape, ()))
        build = partial(WithParameter, BINARY[name], parameter)
        return Branch(f"{name} {shape} {parameter}", build, shape, 0.0, 12.0 * math.prod(shape))
    functions = POINTWISE if few else {**POINTWISE, **OF_MATRICES}
    able = [name for name in functions if limit.has_float64 or name not in WITH_FLOAT64]
    usual = [name for name in able if name in USUAL]
    name = random.choice(usual if random.random() < 0.5 else able)
    times = random.choice((1, 4, 16) if few else (1, 3)) if name in POINTWISE else 1
    moved = 16.0 * times * COPIES.get(name, 1) * math.prod(shape)
    return Branch(f"{name} {shape}", partial(Repeated, functions[name], times), shape, 0.0, moved)


def _cross_entropy(x: Tensor) -> Tensor:
    """Of the innermost dimension, as of classes or of the tokens of a vocabulary."""
    scores = x.flatten(0, -2) if x.dim() > 1 else x[None]
    return F.cross_entropy(scores, torch.zeros(len(scores), dtype=torch.long, device=x.device))


#: Functions of an output that is one tensor.
LOSSES: Mapping[str, Callable[[Tensor], Tensor]] = {
    "mse": lambda x: F.mse_loss(x, torch.zeros_like(x)),
    "cross_entropy": _cross_entropy,
    "smooth_l1": lambda x: F.smooth_l1_loss(x, torch.zeros_like(x)),
    "bce": lambda x: F.binary_cross_entropy_with_logits(x, torch.ones_like(x)),
    "huber": lambda x: F.huber_loss(x, torch.zeros_like(x)),
    "l1": lambda x: F.l1_loss(x, torch.zeros_like(x)),
}
#: The usual ones, as often as they are met; "" is the sum that stands for a loss nobody gave.
DRAWN_LOSSES = (*("", "mse", "cross_entropy") * 3, "smooth_l1", "bce", "huber", "l1")


def loss_named(name: str) -> Callable[[Any], Tensor | None] | None:
    """The loss of this name, of outputs of any kind: what is not one tensor is summed. None for "".

    Raises KeyError for an unknown name.
    """
    if not name:
        return None
    function = LOSSES[name]

    def loss(output: Any) -> Tensor | None:
        return function(output) if isinstance(output, Tensor) and output.dim() > 0 else loss_of(output, None)

    return loss


REDUCTIONS: Mapping[str, Function] = {
    **named(
        (torch.sum,), (torch.sum, -1), (torch.sum, 0), (torch.mean,), (torch.mean, -1), (torch.amax, -1),
        (torch.max, -1), (torch.amin, 0), (torch.argmax, -1), (torch.var, -1), (torch.std, 0), (torch.norm,),
        (torch.logsumexp, -1), (torch.prod, -1), (F.normalize, 2.0, -1), (F.softmax, -1), (F.softmax, 0),
        (F.log_softmax, -1), (torch.cumsum, -1), (torch.cumsum, 0), (torch.topk, 2, -1), (torch.sort, -1),
        (torch.argsort, -1),
    ),
    "any": lambda x: (x > 0).any(),
    "softmax_mask": lambda x: x.masked_fill(x > 2, -1e9).softmax(-1),
    **{name: LOSSES[name] for name in ("mse", "smooth_l1", "cross_entropy", "bce")},
}  # fmt: skip
#: FLOPs of an element where they are far more than a reduction's, and functions without a gradient, by their names.
SORTING_FLOPS, USUAL_FLOPS = {"sort": 200.0, "argsort": 200.0, "topk": 100.0, "cumsum": 20.0}, 5.0
WITHOUT_GRADIENT = ("argmax", "any", "argsort")


def draw_reduction(random: Random, limit: Limit) -> Branch:
    """A reduction, softmax, loss, sort or scan of a random shape."""
    name, shape = random.choice(list(REDUCTIONS)), matrix(random, limit, 8192)
    op, elements = name.split()[0], math.prod(shape)
    flops = SORTING_FLOPS.get(op, USUAL_FLOPS) * elements
    trains = op not in WITHOUT_GRADIENT
    return Branch(f"{name} {shape}", partial(Apply, REDUCTIONS[name]), shape, flops, 8.0 * elements, trains=trains)


def _expanded(index: Tensor, table: Tensor) -> Tensor:
    return index[:, None].expand(-1, table.shape[1])


def _index_put(index: Tensor, table: Tensor) -> Tensor:
    out = torch.zeros_like(table)
    out[index] = table[index]
    return out


def _bags(index: Tensor, table: Tensor) -> Tensor:
    """Sums of up to four rows each."""
    size = min(4, len(index))
    return F.embedding_bag(index[: len(index) // size * size].view(-1, size), table, mode="sum")


def _largest(index: Tensor, table: Tensor) -> Tensor:
    """The largest of the rows that share a number, as attention over a graph takes it."""
    return torch.zeros_like(table).scatter_reduce(0, _expanded(index, table), table[index], "amax", include_self=False)


def _assigned(index: Tensor, table: Tensor) -> Tensor:
    """One number of each row, written to where a pair of indices says, as pooling sends gradients back."""
    count = min(len(index), table.shape[0])
    rows = torch.arange(count, device=index.device)
    out = torch.zeros_like(table)
    out[rows, index[:count] % table.shape[1]] = table[:count, 0]
    return out


def _masked(index: Tensor, table: Tensor) -> Tensor:
    """One number, written to where a mask of the table's shape says."""
    out = torch.zeros_like(table)
    out[table > 0] = 1.0
    return table * out


#: Functions of a vector of row numbers and a trainable table (rows x width).
LOOKUPS: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {
    "embedding": F.embedding,
    "index_select": lambda i, t: t.index_select(0, i),
    "index": lambda i, t: t[i],
    "gather": lambda i, t: t.gather(0, _expanded(i, t)),
    "index_add": lambda i, t: torch.zeros_like(t).index_add(0, i, t[i]),
    "scatter_add": lambda i, t: torch.zeros_like(t).scatter_add(0, _expanded(i, t), t[i]),
    "scatter": lambda i, t: torch.zeros_like(t).scatter(0, _expanded(i, t), t[i]),
    "scatter_reduce": lambda i, t: torch.zeros_like(t).scatter_reduce(0, _expanded(i, t), t[i], "amax"),
    "largest": _largest,
    "index_put": _index_put,
    "sum_rows": lambda i, t: F.embedding_bag(i[None], t, mode="sum"),
    "mean_rows": lambda i, t: F.embedding_bag(i, t, torch.arange(0, len(i), 4, device=i.device), mode="mean"),
    "bags": _bags,
    "numbers": lambda i, t: torch.zeros_like(t[:, 0]).scatter_add(0, i, t[i, 0]),  # as degrees are added up
    "columns": lambda i, t: t[:, i[:32] % t.shape[1]],
    "selected_columns": lambda i, t: t.index_select(1, i[:32] % t.shape[1]),
    "pairs": lambda i, t: t[i, i % t.shape[1]],
    "assigned": _assigned,
    "masked": _masked,
}


def draw_lookup(random: Random, limit: Limit) -> Branch:
    """A lookup in, or a scatter to, a random table."""
    name = random.choice(list(LOOKUPS))
    width = log_int(random, 1, 1024)
    rows = log_int(random, 4, max(8, min(1 << 17, limit.most_elements // 4 // width)))
    indices = log_int(random, 1, max(2, min(1 << 16, limit.most_elements // 8 // width)))

    def numbers(x: Tensor) -> Tensor:
        return torch.randint(0, rows, x.shape)

    build = partial(WithParameter, LOOKUPS[name], (rows, width))
    moved = 16.0 * width * (rows + 2 * indices)
    return Branch(f"{name} {rows}x{width} at {indices}", build, (indices,), 0.0, moved, made=numbers)


def _definite(x: Tensor) -> Tensor:
    """Symmetric, positive definite, and far enough from singular for every factorisation."""
    return x @ x.mT + x.shape[-1] * torch.eye(x.shape[-1], device=x.device)


#: Arithmetic of small factorisations and of transforms is slow: FLOPs count this much more than those of a product.
SLOW = 8.0
#: Functions of batches of definite matrices, and about how many times n^3 FLOPs each takes.
SQUARE: Mapping[str, tuple[Function, float]] = {
    "solve": (lambda x: torch.linalg.solve(x, x), 4.0),
    "triangular": (lambda x: torch.linalg.solve_triangular(x, x, upper=False), 3.0),
    "inv": (torch.linalg.inv, 4.0),
    "cholesky": (torch.linalg.cholesky, 3.0),
    "det": (torch.linalg.det, 1.0),
    "slogdet": (torch.linalg.slogdet, 3.0),
    "eigh": (torch.linalg.eigvalsh, 20.0),
    "qr": (torch.linalg.qr, 8.0),
    "svd": (torch.linalg.svdvals, 40.0),
    "matrix_exp": (lambda x: torch.linalg.matrix_exp(x / x.shape[-1]), 30.0),
}
#: Functions of batches of signals.
TRANSFORMS: Mapping[str, Function] = {
    **named((torch.fft.rfft,), (torch.fft.fft,), (torch.fft.rfft2,)),
    "filter": lambda x: torch.fft.irfft(torch.fft.rfft(x) * 0.5, n=x.shape[-1]),
}


def draw_linear_algebra(random: Random, limit: Limit) -> Branch:
    """A factorisation, distances or a Fourier transform of a random size."""
    kind = random.random()
    if kind < 0.5:
        name = random.choice(list(SQUARE))
        function, cubes = SQUARE[name]
        batch, n = (1 if random.random() < 0.5 else log_int(random, 2, 256)), log_int(random, 2, 512)
        shape: tuple[int, ...] = (batch, n, n)
        flops, moved = SLOW * cubes * batch * n**3, 24.0 * batch * n * n
        return Branch(f"{name} {shape}", partial(Apply, function), shape, flops, moved, made=_definite)
    if kind < 0.65:
        rows, width = log_int(random, 2, 2048), log_int(random, 2, 256)
        flops, moved = 3.0 * SLOW * rows * rows * width, 8.0 * rows * rows
        return Branch(f"cdist {rows}x{width}", partial(Apply, _distances), (rows, width), flops, moved)
    name = random.choice(list(TRANSFORMS))
    batch, length = log_int(random, 1, 512), log_int(random, 4, 8192)
    flops, moved = SLOW * batch * length * math.log2(length), 32.0 * batch * length
    return Branch(f"{name} {batch}x{length}", partial(Apply, TRANSFORMS[name]), (batch, length), flops, moved)


def _distances(x: Tensor) -> Tensor:
    return torch.cdist(x, x * 1.5)
