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
OfTwo = Callable[[Tensor, Tensor], Tensor]


def named(*rows: tuple[Any, ...]) -> dict[str, Function]:
    """Functions by name; what follows one in a row are its arguments after the tensor."""
    functions: dict[str, Function] = {}
    for function, *arguments in rows:
        functions[" ".join([name_of(function), *map(str, arguments)])] = _with(function, arguments)
    return functions


def _with(function: Callable[..., Any], arguments: list[Any]) -> Function:
    def call(x: Tensor) -> Any:
        return function(x, *arguments)

    return call


def name_of(function: Callable[..., Any]) -> str:
    """What a function is called in the name of a probe."""
    return function.__name__.strip("_")


def matrix(random: Random, limit: Limit, widest: int) -> tuple[int, int]:
    """Rows, at least two, and columns of a matrix with any number of elements."""
    numel = log_int(random, 16, limit.most_elements)
    columns = log_int(random, 2, max(2, min(widest, numel)))
    return max(numel // columns, 2), columns


def gelu_tanh(x: Tensor) -> Tensor:
    """The approximation that GPT-2 has."""
    return F.gelu(x, approximate="tanh")


def _relu_in_place(x: Tensor) -> Tensor:
    return F.relu_(x * 1.5)


def _copied(x: Tensor) -> Tensor:
    return torch.empty_like(x).copy_(x.detach()) + x


def _where(x: Tensor) -> Tensor:
    return torch.where(x > 0, x, -x)


def _masked(x: Tensor) -> Tensor:
    return x * (x > 0)


def _masked_fill(x: Tensor) -> Tensor:
    return x.masked_fill(x > 1, 0.0)


def _noise(x: Tensor) -> Tensor:
    return x + torch.randn_like(x)


#: Functions of one tensor of any shape, single numbers included, whose result may be their operand again.
POINTWISE = named(
    (F.relu,), (F.gelu,), (torch.tanh,), (torch.sigmoid,), (F.silu,), (torch.mul, 0.5),
    (F.dropout, 0.1), (torch.exp,), (F.mish,), (F.leaky_relu,), (F.elu,), (torch.pow, 2),
    (torch.pow, 3), (gelu_tanh,), (F.softplus,), (F.hardswish,), (F.relu6,), (F.hardsigmoid,),
    (F.logsigmoid,), (torch.sin,), (torch.cos,), (torch.erf,), (torch.abs,), (torch.neg,),
    (torch.clamp, -1, 1), (torch.add, 1.0), (torch.div, 3.0), (torch.clone,), (Tensor.double,),
    (Tensor.bfloat16,), (torch.log,), (torch.sqrt,), (torch.rsqrt,), (torch.reciprocal,),
    (_relu_in_place,), (_copied,), (_where,), (_masked,), (_masked_fill,), (_noise,),
)  # fmt: skip
#: What is converted to a dtype that a device may lack.
CONVERSIONS = {"double": "float64", "bfloat16": "bfloat16"}
#: Functions of positive numbers alone.
OF_POSITIVE = ("log", "sqrt", "rsqrt", "reciprocal")


def _by_first_column(x: Tensor) -> Tensor:
    return x * x[:, :1]


def _cat(x: Tensor) -> Tensor:
    return torch.cat([x, x], -1)


def _transposed(x: Tensor) -> Tensor:
    return x.transpose(0, -1).contiguous()


def permuted(x: Tensor) -> Tensor:
    """Channels moved to the end, or from there."""
    images = min(4, x.shape[0])
    rows = x.shape[0] // images
    moved: Tensor = x[: images * rows].unflatten(0, (images, rows)).transpose(1, 2).contiguous()
    return moved


def _strided(x: Tensor) -> Tensor:
    return x[..., ::2] * 2.0


def _gated(x: Tensor) -> Tensor:
    return F.glu(x[..., : x.shape[-1] // 2 * 2], -1)


#: Functions of a matrix. Most have a result of another shape.
OF_MATRICES = named(
    (_by_first_column,), (_cat,), (_transposed,), (permuted,), (_strided,), (_gated,), (F.pad, (1, 1)),
    (torch.flip, (-1,)), (torch.roll, 1, -1), (torch.tril,), (Tensor.repeat, 2, 1),
)  # fmt: skip
#: Those that fill most networks: half of the proposals are theirs.
USUAL = (*list(POINTWISE)[:12], "by_first_column", "cat")


def _quotient(x: Tensor, p: Tensor) -> Tensor:
    return x / (p * p + 1.0)


def _plus_product(x: Tensor, p: Tensor) -> Tensor:
    return torch.addcmul(x, x, p)


#: Functions of a tensor and a trainable one: the same shape, a row of it (a bias, a gain) or a single number.
BINARY: tuple[OfTwo, ...] = (torch.add, torch.sub, torch.mul, _quotient, torch.maximum, _plus_product)
#: Share of branches of a few numbers or one, as solvers of equations and losses compute with: what an op costs at all.
FEW, MOST_OF_FEW = 0.1, 16


def above(x: Tensor) -> Tensor:
    """From 1 on: what roots and logarithms are taken of."""
    return x * x + 1.0


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
    size = math.prod(shape)
    if random.random() < 0.25:
        function, parameter = random.choice(BINARY), random.choice((shape[1:], shape, ()))
        name = f"{name_of(function)} {shape} {parameter}"
        return Branch(name, partial(WithParameter, function, parameter), shape, 0.0, 12.0 * size)
    functions = POINTWISE if few else {**POINTWISE, **OF_MATRICES}
    able = [name for name in functions if name not in CONVERSIONS or limit.has(CONVERSIONS[name])]
    usual = [name for name in able if name in USUAL]
    name = random.choice(usual if random.random() < 0.5 else able)
    positive = name in OF_POSITIVE
    times = 1
    if name in POINTWISE and not positive:
        times = random.choice((1, 4, 16) if few else (1, 3))
    build = partial(Repeated, functions[name], times)
    return Branch(f"{name} {shape}", build, shape, 0.0, 16.0 * times * size, made=above if positive else None)


def _from_zeros(loss: OfTwo, x: Tensor) -> Tensor:
    return loss(x, torch.zeros_like(x))


def _cross_entropy(x: Tensor) -> Tensor:
    """Of the innermost dimension, as of classes or of the tokens of a vocabulary."""
    scores = x.flatten(0, -2) if x.dim() > 1 else x[None]
    return F.cross_entropy(scores, torch.zeros(len(scores), dtype=torch.long, device=x.device))


def _binary_cross_entropy(x: Tensor) -> Tensor:
    return F.binary_cross_entropy_with_logits(x, torch.ones_like(x))


#: Functions of an output that is one tensor.
LOSSES: Mapping[str, Callable[[Tensor], Tensor]] = {
    "mse": partial(_from_zeros, F.mse_loss),
    "cross_entropy": _cross_entropy,
    "smooth_l1": partial(_from_zeros, F.smooth_l1_loss),
    "bce": _binary_cross_entropy,
    "huber": partial(_from_zeros, F.huber_loss),
    "l1": partial(_from_zeros, F.l1_loss),
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


def _any_above(x: Tensor) -> Tensor:
    return (x > 0).any()


REDUCTIONS: Mapping[str, Function] = {
    **named(
        (torch.sum,), (torch.sum, -1), (torch.sum, 0), (torch.mean,), (torch.mean, -1), (torch.amax, -1),
        (torch.max, -1), (torch.amin, 0), (torch.argmax, -1), (torch.var, -1), (torch.std, 0), (torch.norm,),
        (torch.logsumexp, -1), (torch.prod, -1), (F.normalize, 2.0, -1), (F.softmax, -1), (F.softmax, 0),
        (F.log_softmax, -1), (torch.cumsum, -1), (torch.cumsum, 0), (torch.topk, 2, -1), (torch.sort, -1),
        (torch.argsort, -1), (_any_above,),
    ),
    **{name: LOSSES[name] for name in ("mse", "smooth_l1", "cross_entropy", "bce")},
}  # fmt: skip
#: FLOPs of an element where they are far more than a reduction's, and functions without a gradient, by their names.
SORTING_FLOPS, USUAL_FLOPS = {"sort": 200.0, "argsort": 200.0, "topk": 100.0, "cumsum": 20.0}, 5.0
WITHOUT_GRADIENT = ("argmax", "any_above", "argsort")


def draw_reduction(random: Random, limit: Limit) -> Branch:
    """A reduction, softmax, loss, sort or scan of a random shape."""
    name, shape = random.choice(list(REDUCTIONS)), matrix(random, limit, 8192)
    op, elements = name.split()[0], math.prod(shape)
    flops = SORTING_FLOPS.get(op, USUAL_FLOPS) * elements
    trains = op not in WITHOUT_GRADIENT
    return Branch(f"{name} {shape}", partial(Apply, REDUCTIONS[name]), shape, flops, 8.0 * elements, trains=trains)


def _to_each_row(index: Tensor, table: Tensor) -> Tensor:
    return index[:, None].expand(-1, table.shape[1])


def _selected(index: Tensor, table: Tensor) -> Tensor:
    return table.index_select(0, index)


def _indexed(index: Tensor, table: Tensor) -> Tensor:
    return table[index]


def _gathered(index: Tensor, table: Tensor) -> Tensor:
    return table.gather(0, _to_each_row(index, table))


def _rows_added(index: Tensor, table: Tensor) -> Tensor:
    return torch.zeros_like(table).index_add(0, index, table[index])


def _scatter_add(index: Tensor, table: Tensor) -> Tensor:
    return torch.zeros_like(table).scatter_add(0, _to_each_row(index, table), table[index])


def largest(index: Tensor, table: Tensor) -> Tensor:
    """The largest of the rows that share a number, as attention over a graph takes it."""
    return torch.zeros_like(table).scatter_reduce(0, _to_each_row(index, table), table[index], "amax")


def _index_put(index: Tensor, table: Tensor) -> Tensor:
    out = torch.zeros_like(table)
    out[index] = table[index]
    return out


def bags(index: Tensor, table: Tensor) -> Tensor:
    """Means of up to four rows each."""
    size = min(4, len(index))
    return F.embedding_bag(index[: len(index) // size * size].view(-1, size), table, mode="mean")


def degrees(index: Tensor, table: Tensor) -> Tensor:
    """Single numbers added up, as those of a graph's nodes."""
    return torch.zeros_like(table[:, 0]).scatter_add(0, index, table[index, 0])


def _columns(index: Tensor, table: Tensor) -> Tensor:
    return table[:, index[:32] % table.shape[1]]


#: Functions of a vector of row numbers and a trainable table (rows x width).
LOOKUPS: tuple[OfTwo, ...] = (
    F.embedding, _selected, _indexed, _gathered, _rows_added, _scatter_add, largest, _index_put, bags, degrees,
    _columns,
)  # fmt: skip


def draw_lookup(random: Random, limit: Limit) -> Branch:
    """A lookup in, or a scatter to, a random table."""
    function = random.choice(LOOKUPS)
    width = log_int(random, 1, 1024)
    rows = log_int(random, 4, max(8, min(1 << 17, limit.most_elements // 4 // width)))
    count = log_int(random, 1, max(2, min(1 << 16, limit.most_elements // 8 // width)))

    def numbers(x: Tensor) -> Tensor:
        return torch.randint(0, rows, x.shape)

    name = f"{name_of(function)} {rows}x{width} at {count}"
    moved = 16.0 * width * (rows + 2 * count)
    return Branch(name, partial(WithParameter, function, (rows, width)), (count,), 0.0, moved, made=numbers)


def _definite(x: Tensor) -> Tensor:
    """Symmetric, positive definite, and far enough from singular for every factorisation."""
    return x @ x.mT + x.shape[-1] * torch.eye(x.shape[-1], device=x.device)


def _solved(x: Tensor) -> Any:
    return torch.linalg.solve(x, x)


def _solved_triangular(x: Tensor) -> Any:
    return torch.linalg.solve_triangular(x, x, upper=False)


def _exponential(x: Tensor) -> Any:
    return torch.linalg.matrix_exp(x / x.shape[-1])


def _distances(x: Tensor) -> Any:
    return torch.cdist(x, x * 1.5)


def _filtered(x: Tensor) -> Any:
    return torch.fft.irfft(torch.fft.rfft(x) * 0.5, n=x.shape[-1])


#: Arithmetic of small factorisations and of transforms is slow: FLOPs count this much more than those of a product.
SLOW = 8.0
#: Functions of batches of definite matrices, and about how many times n^3 FLOPs each takes.
SQUARE: tuple[tuple[Function, float], ...] = (
    (_solved, 4.0), (_solved_triangular, 3.0), (torch.linalg.inv, 4.0), (torch.linalg.cholesky, 3.0),
    (torch.linalg.det, 1.0), (torch.linalg.slogdet, 3.0), (torch.linalg.eigvalsh, 20.0), (torch.linalg.qr, 8.0),
    (torch.linalg.svdvals, 40.0), (_exponential, 30.0),
)  # fmt: skip
#: Functions of batches of signals.
TRANSFORMS: tuple[Function, ...] = (torch.fft.rfft, torch.fft.fft, torch.fft.rfft2, _filtered)


def draw_linear_algebra(random: Random, limit: Limit) -> Branch:
    """A factorisation, distances or a Fourier transform of a random size."""
    kind = random.random()
    if kind < 0.5:
        function, cubes = random.choice(SQUARE)
        batch, n = (1 if random.random() < 0.5 else log_int(random, 2, 256)), log_int(random, 2, 512)
        shape: tuple[int, ...] = (batch, n, n)
        flops, moved = SLOW * cubes * batch * n**3, 24.0 * batch * n * n
        return Branch(f"{name_of(function)} {shape}", partial(Apply, function), shape, flops, moved, made=_definite)
    if kind < 0.65:
        rows, width = log_int(random, 2, 2048), log_int(random, 2, 256)
        flops, moved = 3.0 * SLOW * rows * rows * width, 8.0 * rows * rows
        return Branch(f"distances {rows}x{width}", partial(Apply, _distances), (rows, width), flops, moved)
    function = random.choice(TRANSFORMS)
    batch, length = log_int(random, 1, 512), log_int(random, 4, 8192)
    flops, moved = SLOW * batch * length * math.log2(length), 32.0 * batch * length
    return Branch(f"{name_of(function)} {batch}x{length}", partial(Apply, function), (batch, length), flops, moved)
