"""What functions of tensors do: elementwise ops and copies, reductions, losses and sorts, lookups, linear algebra."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from placer.calibration.benchmarks.probe import Apply, Branch, Limit, WithParameter, log_int
from placer.workload import loss_of


def windows(length: int) -> Callable[[Tensor], Tensor]:
    """Overlapping stretches of every row, each copied: an innermost loop of ``length`` elements, as in unfolding."""
    return lambda x: x.unfold(-1, min(length, x.shape[-1]), 1).contiguous()


def blocks(side: int) -> Callable[[Tensor], Tensor]:
    """The rows cut into squares of ``side`` elements, each laid out by itself."""

    def cut(x: Tensor) -> Tensor:
        rows, columns = (max(n // side, 1) for n in x.shape)
        squares: Tensor = x[: rows * side, : columns * side].unflatten(0, (rows, -1)).unflatten(2, (columns, -1))
        return squares.transpose(1, 2).contiguous()

    return cut


def patches(side: int, step: int) -> Callable[[Tensor], Tensor]:
    """Every square of ``side`` elements as one row, ``step`` apart: convolution and pooling written out by hand."""

    def unfold(x: Tensor) -> Tensor:
        height, width = (min(side, n) for n in x.shape)
        return x.unfold(0, height, step).unfold(1, width, step).reshape(-1, height * width)

    return unfold


def unpatched(x: Tensor) -> Tensor:
    """The inverse of two by two patches side by side."""
    rows, columns = (max(n // 2, 1) for n in x.shape)
    side = 2 if min(x.shape) > 1 else 1
    parts = x.flatten()[: rows * columns * side**2].view(rows, columns, side, side)
    return parts.transpose(1, 2).reshape(rows * side, columns * side)


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


def add_channels_(x: Tensor) -> Tensor:
    """The same for channels that lie side by side in the matrix of patches and apart in the image."""
    channels = next(n for n in (64, 16, 4, 1) if n <= max(x.shape[1], 1))
    side = 3 if x.numel() >= 9 * channels else 1
    length = math.isqrt(x.numel() // (channels * side**2))
    squares = x.flatten()[: length**2 * channels * side**2].view(length, length, channels, side, side)
    squares = squares.permute(2, 3, 4, 0, 1)
    image = x.new_zeros(channels, length + side - 1, length + side - 1)
    for i in range(side):
        for j in range(side):
            image[:, i : i + length, j : j + length] += squares[:, i, j]
    return image


def permuted(x: Tensor) -> Tensor:
    """Channels moved to the end, or from there."""
    images = min(4, x.shape[0])
    rows = x.shape[0] // images
    moved: Tensor = x[: images * rows].unflatten(0, (images, rows)).transpose(1, 2).contiguous()
    return moved


def add_half_(x: Tensor) -> Tensor:
    """Half of every row added to the other half, in place: a gradient that is put together from parts."""
    y, half = x * 1.5, x.shape[-1] // 2
    y[..., :half].add_(x[..., half : 2 * half])
    return y


#: Functions of one tensor; the most used come first (see ``POPULAR``). Another order would draw other probes.
UNARY: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "silu": F.silu,
    "scale": lambda x: x * 0.5,
    "by_row": lambda x: x * x[:, :1],
    "add_row": lambda x: x + x[:, :1],
    "dropout": lambda x: F.dropout(x, 0.1),
    "cat": lambda x: torch.cat([x, x], -1),
    "exp": torch.exp,
    "mish": F.mish,
    "leaky_relu": F.leaky_relu,
    "elu": F.elu,
    "pow2": lambda x: x**2,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "log": lambda x: (x * x + 1).log(),
    "softplus": F.softplus,
    "hardswish": F.hardswish,
    "sin": torch.sin,
    "cos": torch.cos,
    "sqrt": lambda x: (x * x + 1).sqrt(),
    "rsqrt": lambda x: (x * x + 1).rsqrt(),
    "pow3": lambda x: x**3,
    "abs": torch.abs,
    "neg": torch.neg,
    "clamp": lambda x: x.clamp(-1, 1),
    "reciprocal": lambda x: (x * x + 1).reciprocal(),
    "square": torch.square,
    "relu_": lambda x: F.relu_(x * 1.5),
    "tanh_": lambda x: (x * 1.5).tanh_(),
    "hardtanh": F.relu6,
    "hardsigmoid": F.hardsigmoid,
    "log_sigmoid": F.logsigmoid,
    "erf": torch.erf,
    "to64": lambda x: x.double(),
    "to16": lambda x: x.bfloat16(),
    "shift": lambda x: x + 1.0,
    "divide": lambda x: x / 3.0,
    "clone": torch.clone,
    "greater": lambda x: (x > 0).float() * x,
    "where": lambda x: torch.where(x > 0, x, -x),
    "masked_fill": lambda x: x.masked_fill(x > 1, 0.0),
    "noise": lambda x: x + torch.randn_like(x),
    "uniform": lambda x: x + torch.rand_like(x),
    "zeros": lambda x: x + torch.zeros_like(x),
    "ones": lambda x: x * torch.ones_like(x),
    "transpose": lambda x: x.transpose(0, -1).contiguous(),
    "transposed_add": lambda x: x + x.transpose(0, -1),
    "strided": lambda x: x[..., ::2] * 2.0,
    "chunk": lambda x: torch.cat(x.chunk(2, -1)[::-1], -1),
    "stack": lambda x: torch.stack([x, x], 0),
    "pad": lambda x: F.pad(x, (1, 1)),
    "flip": lambda x: x.flip(-1),
    "roll": lambda x: x.roll(1, -1),
    "tril": torch.tril,
    "repeat": lambda x: x.repeat(2, 1),
    "glu": lambda x: F.glu(x[..., : x.shape[-1] // 2 * 2], -1),
    "add_": lambda x: (x * 2.0).add_(x),
    "windows2": windows(2),
    "windows3": windows(3),
    "windows5": windows(5),
    "blocks2": blocks(2),
    "blocks4": blocks(4),
    "add_half_": add_half_,
    "mul_": lambda x: (x + 1.0).mul_(x),
    "patches2": patches(2, 1),
    "patches3": patches(3, 1),
    "patches5": patches(5, 1),
    "tiles2": patches(2, 2),
    "tiles3": patches(3, 3),
    "unpatched": unpatched,
    "add_patches_": add_patches_,
    "permuted": permuted,
    "add_channels_": add_channels_,
    "copy_": lambda x: torch.empty_like(x).copy_(x.detach()) + x,
    "masked": lambda x: x * (x > 0),
    "counted": lambda x: x - (x > 0).long(),
    "widened": lambda x: x + (x > 0).double(),
}

#: Functions of a tensor and a trainable one: the same shape, a row of it (a bias, a gain) or a single number.
BINARY: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": lambda x, p: x / (p * p + 1.0),
    "maximum": torch.maximum,
    "addcmul": lambda x, p: torch.addcmul(x, x, p),
    "lerp": lambda x, p: torch.lerp(x, p.expand_as(x), 0.3),
}
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


def draw_elementwise(random: Random, limit: Limit) -> Branch:
    """An elementwise op, a copy or random numbers on a random shape."""
    if random.random() < FEW:
        return _few(random, limit)
    numel = log_int(random, 16, limit.most_elements)
    columns = log_int(random, 2, max(2, min(4096, numel)))
    rows = max(numel // columns, 2)
    if random.random() < 0.25:
        name = random.choice(list(BINARY))
        parameter = random.choice(((columns,), (rows, columns), ()))
        return _with_parameter(name, (rows, columns), f"{rows}x{columns}", parameter)
    names = [name for name in UNARY if limit.has_float64 or name not in WITH_FLOAT64]
    name = random.choice(names[:POPULAR] if random.random() < 0.5 else names)
    if name == "transposed_add":
        rows = columns = min(rows, columns)
    times = 1 if name in ONCE else random.choice((1, 3))
    moved = 16.0 * times * COPIES.get(name, 1) * rows * columns
    return Branch(f"{name} {rows}x{columns}", lambda: Repeated(UNARY[name], times), (rows, columns), 0.0, moved)


def _few(random: Random, limit: Limit) -> Branch:
    """A function of a vector of a few numbers, or of one alone; applied again and again, as step after step is."""
    numbers = log_int(random, 1, MOST_OF_FEW)
    shape = random.choice(((), (numbers,), (1, numbers)))
    if random.random() < 0.4:
        name = random.choice(list(BINARY))
        parameter = random.choice(((), shape))
        return _with_parameter(name, shape, str(shape), parameter)
    name = random.choice([name for name in OF_ANY_SHAPE if limit.has_float64 or name not in WITH_FLOAT64])
    times = 1 if name in ONCE else random.choice((1, 4, 16))
    return Branch(f"{name} {shape}", lambda: Repeated(UNARY[name], times), shape, 0.0, 16.0 * times * numbers)


def _with_parameter(name: str, shape: tuple[int, ...], shown: str, parameter: tuple[int, ...]) -> Branch:
    build = partial(WithParameter, BINARY[name], parameter)
    return Branch(f"{name} {shown} {parameter}", build, shape, 0.0, 12.0 * math.prod(shape))


def _cross_entropy(x: Tensor) -> Tensor:
    """Of the innermost dimension, as of classes or of the tokens of a vocabulary."""
    scores = x.flatten(0, -2) if x.dim() > 1 else x[None]
    return F.cross_entropy(scores, torch.zeros(len(scores), dtype=torch.long, device=x.device))


#: Functions of an output that is one tensor.
LOSSES: dict[str, Callable[[Tensor], Tensor]] = {
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


#: FLOPs per element: far more work than a reduction's.
SORTING_FLOPS = {"sort": 200.0, "argsort": 200.0, "topk": 100.0, "cumsum": 20.0, "cumsum_outer": 20.0}


REDUCTIONS: dict[str, Callable[[Tensor], object]] = {
    "sum_all": lambda x: x.sum(),
    "sum_inner": lambda x: x.sum(-1),
    "sum_outer": lambda x: x.sum(0),
    "mean": lambda x: x.mean(-1),
    "mean_all": lambda x: x.mean(),
    "amax": lambda x: x.amax(-1),
    "max": lambda x: x.max(-1).values,
    "amin_outer": lambda x: x.amin(0),
    "argmax": lambda x: x.argmax(-1),
    "var": lambda x: x.var(-1),
    "std": lambda x: x.std(0),
    "norm": lambda x: x.norm(),
    "logsumexp": lambda x: x.logsumexp(-1),
    "any": lambda x: (x > 0).any(),
    "prod": lambda x: x.prod(-1),
    "normalize": lambda x: F.normalize(x, dim=-1),
    "softmax": lambda x: x.softmax(-1),
    "log_softmax": lambda x: x.log_softmax(-1),
    "softmax_outer": lambda x: x.softmax(0),
    "softmax_mask": lambda x: x.masked_fill(x > 2, -1e9).softmax(-1),
    "cumsum": lambda x: x.cumsum(-1),
    "cumsum_outer": lambda x: x.cumsum(0),
    "topk": lambda x: x.topk(min(2, x.shape[-1]), -1).values,
    "sort": lambda x: x.sort(-1).values,
    "argsort": lambda x: x.argsort(-1),
    **LOSSES,
}
#: All that is drawn from. Another order would draw other probes.
DRAWN_REDUCTIONS = (
    "softmax", "log_softmax", "softmax_outer", "sum_all", "sum_inner", "sum_outer", "mean", "mean_all", "amax", "max",
    "amin_outer", "argmax", "var", "std", "norm", "logsumexp", "cumsum", "topk", "sort", "mse", "smooth_l1",
    "cross_entropy", "bce", "any", "normalize", "softmax_mask", "cumsum_outer", "argsort", "prod",
)  # fmt: skip
WITHOUT_GRADIENT = ("argmax", "any", "argsort")
#: FLOPs per element.
USUAL_FLOPS = 5.0


def draw_reduction(random: Random, limit: Limit) -> Branch:
    """A reduction, softmax, loss, sort or scan of a random shape."""
    name = random.choice(DRAWN_REDUCTIONS)
    numel = log_int(random, 16, limit.most_elements)
    columns = log_int(random, 2, max(2, min(8192, numel)))
    rows = max(numel // columns, 2)
    return Branch(
        f"{name} {rows}x{columns}",
        lambda: Apply(REDUCTIONS[name]),
        (rows, columns),
        SORTING_FLOPS.get(name, USUAL_FLOPS) * rows * columns,
        8.0 * rows * columns,
        trains=name not in WITHOUT_GRADIENT,
    )


def _expanded(index: Tensor, table: Tensor) -> Tensor:
    return index[:, None].expand(-1, table.shape[1])


def _index_put(index: Tensor, table: Tensor) -> Tensor:
    out = torch.zeros_like(table)
    out[index] = table[index]
    return out


def _pooled_rows(index: Tensor, table: Tensor) -> Tensor:
    rows = table[index]
    return torch.zeros_like(table).index_add(0, index, rows)


def _bags(index: Tensor, table: Tensor) -> Tensor:
    """Sums of up to four rows each."""
    size = min(4, len(index))
    return F.embedding_bag(index[: len(index) // size * size].view(-1, size), table, mode="sum")


def _numbers(index: Tensor, table: Tensor) -> Tensor:
    """One number for each row, as degrees of nodes are added up."""
    return torch.zeros_like(table[:, 0]).scatter_add(0, index, table[index, 0])


def _largest(index: Tensor, table: Tensor) -> Tensor:
    """The largest of the rows that share a number, as attention over a graph takes it."""
    return torch.zeros_like(table).scatter_reduce(0, _expanded(index, table), table[index], "amax", include_self=False)


def _columns(index: Tensor, table: Tensor) -> Tensor:
    """Few columns of every row, picked one by one."""
    return table[:, index[:32] % table.shape[1]]


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
LOOKUPS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "embedding": lambda i, t: F.embedding(i, t),
    "embedding2": lambda i, t: F.embedding(i, t),
    "index_select": lambda i, t: t.index_select(0, i),
    "index": lambda i, t: t[i],
    "gather": lambda i, t: t.gather(0, _expanded(i, t)),
    "index_add": _pooled_rows,
    "scatter_add": lambda i, t: torch.zeros_like(t).scatter_add(0, _expanded(i, t), t[i]),
    "scatter": lambda i, t: torch.zeros_like(t).scatter(0, _expanded(i, t), t[i]),
    "index_put": _index_put,
    "scatter_add_": lambda i, t: torch.zeros_like(t).scatter_add_(0, _expanded(i, t), t[i]),
    "sum_rows": lambda i, t: F.embedding_bag(i[None], t, mode="sum"),
    "mean_rows": lambda i, t: F.embedding_bag(i, t, torch.arange(0, len(i), 4, device=i.device), mode="mean"),
    "bags": _bags,
    "bags2": _bags,
    "numbers": _numbers,
    "largest": _largest,
    "largest2": _largest,
    "columns": _columns,
    "assigned": _assigned,
    "assigned2": _assigned,
    "masked": _masked,
    "pairs": lambda i, t: t[i, i % t.shape[1]],
    "selected_columns": lambda i, t: t.index_select(1, i[:32] % t.shape[1]),
    "scatter_reduce": lambda i, t: torch.zeros_like(t).scatter_reduce(0, _expanded(i, t), t[i], "amax"),
}


def draw_lookup(random: Random, limit: Limit) -> Branch:
    """A lookup in, or a scatter to, a random table."""
    name = random.choice(list(LOOKUPS))
    width = log_int(random, 1, 1024)
    rows = log_int(random, 4, max(8, min(1 << 17, limit.most_elements // 4 // width)))
    indices = log_int(random, 1, max(2, min(1 << 16, limit.most_elements // 8 // width)))
    return Branch(
        f"{name} {rows}x{width} at {indices}",
        lambda: WithParameter(LOOKUPS[name], (rows, width)),
        (indices,),
        0.0,
        16.0 * width * (rows + 2 * indices),
        made=lambda x: torch.randint(0, rows, x.shape),
    )


#: Functions of batches of signals.
TRANSFORMS: dict[str, Callable[[Tensor], Tensor]] = {
    "rfft": lambda x: torch.fft.rfft(x).abs(),
    "fft": lambda x: torch.fft.fft(x).real,
    "rfft2": lambda x: torch.fft.rfft2(x).abs(),
    "filter": lambda x: torch.fft.irfft(torch.fft.rfft(x) * 0.5, n=x.shape[-1]),
}


def _draw_transform(random: Random) -> Branch:
    """A transform of a random batch of signals."""
    name = random.choice(list(TRANSFORMS))
    batch, length = log_int(random, 1, 512), log_int(random, 4, 8192)
    return Branch(
        f"{name} {batch}x{length}",
        lambda: Apply(TRANSFORMS[name]),
        (batch, length),
        SLOW * batch * length * math.log2(length),
        32.0 * batch * length,
    )


def _definite(x: Tensor) -> Tensor:
    """Symmetric, positive definite, and far enough from singular for every factorisation."""
    return x @ x.mT + x.shape[-1] * torch.eye(x.shape[-1], device=x.device)


#: Functions of batches of square matrices, and about how many times n^3 FLOPs each takes.
SQUARE: dict[str, tuple[Callable[[Tensor], Tensor], float]] = {
    "solve": (lambda x: torch.linalg.solve(_definite(x), x), 4.0),
    "inv": (lambda x: torch.linalg.inv(_definite(x)), 4.0),
    "cholesky": (lambda x: torch.linalg.cholesky(_definite(x)), 3.0),
    "det": (lambda x: torch.linalg.det(x), 1.0),
    "slogdet": (lambda x: torch.linalg.slogdet(_definite(x)).logabsdet, 3.0),
    "triangular": (lambda x: torch.linalg.solve_triangular(_definite(x).tril(), x, upper=False), 3.0),
    "eigh": (lambda x: torch.linalg.eigvalsh(_definite(x)), 20.0),
    "qr": (lambda x: torch.linalg.qr(x).R, 8.0),
    "svd": (lambda x: torch.linalg.svdvals(x), 40.0),
    "matrix_exp": (lambda x: torch.linalg.matrix_exp(x / x.shape[-1]), 30.0),
}
#: Arithmetic of small factorisations and of transforms is slow: FLOPs count this much more than those of a product.
SLOW = 8.0


def draw_linear_algebra(random: Random, limit: Limit) -> Branch:
    """A factorisation, distances or a Fourier transform of a random size."""
    kind = random.random()
    return _draw_square(random) if kind < 0.5 else _draw_distances(random) if kind < 0.65 else _draw_transform(random)


def _draw_square(random: Random) -> Branch:
    name = random.choice(list(SQUARE))
    function, cubes = SQUARE[name]
    batch, n = (1 if random.random() < 0.5 else log_int(random, 2, 256)), log_int(random, 2, 512)
    return Branch(
        f"{name} {batch}x{n}x{n}",
        lambda: Apply(function),
        (batch, n, n),
        SLOW * cubes * batch * n**3,
        24.0 * batch * n * n,
    )


def _draw_distances(random: Random) -> Branch:
    rows, width = log_int(random, 2, 2048), log_int(random, 2, 256)
    return Branch(
        f"cdist {rows}x{width}",
        lambda: Apply(lambda x: torch.cdist(x, x * 1.5)),
        (rows, width),
        3.0 * SLOW * rows * rows * width,
        8.0 * rows * rows,
    )
