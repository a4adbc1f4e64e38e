"""What layers do: products, convolutions, normalization, pooling, recurrence, attention; and updates."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from placer.calibration.benchmarks.probe import Branch, Limit, Probe, WithParameter, log_int, name_of, tensor, widths


class Residual(nn.Module):
    """``x + body(x)``."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, x: Tensor) -> Any:
        return x + self.body(x)


class InParts(nn.Module):
    """``body`` on one part of the batch after the other, put together again: ghost batches, chunks to save memory.

    The same few ops run many times in a row, on little each time, in a step that may be large.
    """

    def __init__(self, body: nn.Module, parts: int) -> None:
        super().__init__()
        self.body, self.parts = body, parts

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.body(part) for part in x.tensor_split(self.parts)])


#: float32 is what most steps run; the others only where their rate differs.
DTYPES = (torch.float32,) * 24 + (torch.bfloat16, torch.bfloat16, torch.float64, torch.float16)
PRODUCT_KINDS = (
    "linear", "linear", "layer", "layer", "layer", "linear_3d", "bmm", "vector", "single", "square", "weights", "thin",
)  # fmt: skip
#: Widest layers.
WIDEST, WIDEST_ON_ACCELERATOR = 4096, 16384
#: How much slower a FLOP may be in a dtype that has no fast kernels everywhere, to keep a probe short.
SLOWER = {torch.float32: 1.0, torch.bfloat16: 4.0, torch.float64: 2.0, torch.float16: 60.0}


class MatrixVector(nn.Module):
    """A matrix times a vector without a batch dimension, as equations are written down."""

    def __init__(self, rows: int, columns: int) -> None:
        super().__init__()
        self.matrix = nn.Parameter(torch.randn(rows, columns))

    def forward(self, x: Tensor) -> Tensor:
        return self.matrix @ x


def draw_product(random: Random, limit: Limit) -> Branch:
    """A product of a random shape."""
    dtype = random.choice(DTYPES)
    widest = WIDEST
    if limit.accelerator is not None:  # half precision is drawn for whole branches there
        dtype = torch.float64 if dtype == torch.float64 and limit.has("float64") else torch.float32
        widest = WIDEST_ON_ACCELERATOR
    slower = SLOWER[dtype] if limit.accelerator is None else limit.accelerator.slower.get(name_of(dtype), 1.0)
    kind = random.choice(PRODUCT_KINDS)
    m, (k, n) = log_int(random, 1, 16384), widths(random, 1, widest, 2)
    batch = log_int(random, 1, 256) if kind == "bmm" else 1
    if kind in ("vector", "single"):
        m = 1
    elif kind == "layer":  # as wide as layers are: of shapes drawn evenly, half are too thin for a fast kernel
        m, (k, n) = log_int(random, 16, 16384), widths(random, 24, widest // 2, 2)
    elif kind == "weights":  # few rows through a large layer: its weights come from memory
        m, (k, n) = log_int(random, 1, 64), widths(random, 512, widest, 2)
    elif kind == "thin":  # many rows of few numbers, as patches of images are: no kernel's tile is ever full
        m, k, n = log_int(random, 64, 65536), log_int(random, 1, 48), log_int(random, 1, 48)
    elif kind == "square":
        m = k = n
    flops = 2.0 * batch * m * k * n * slower
    moved = 4.0 * batch * (m * k + k * n + m * n)
    bias, transposed = random.random() < 0.7, random.random() < 0.5

    layer: Callable[[], nn.Module] = partial(nn.Linear, k, n, bias=bias)
    shape: tuple[int, ...] = (max(m // 8, 1), 8, k) if kind == "linear_3d" else (m, k)
    name = f"{kind} {m}x{k}x{n} {dtype}"
    if kind == "single":
        layer, shape, name = partial(MatrixVector, n, k), (k,), f"mv {n}x{k} {dtype}"
    elif kind == "bmm":
        layer = partial(WithParameter, torch.bmm, (batch, k, n))
        if transposed:  # stored as attention's keys are
            layer = partial(WithParameter, _times_transposed, (batch, n, k))
        shape, name = (batch, m, k), f"bmm {batch}x{m}x{k}x{n} {dtype}"
    return Branch(name, layer, shape, flops, moved, dtype=dtype, slower=slower)


def _times_transposed(x: Tensor, other: Tensor) -> Tensor:
    return torch.bmm(x, other.transpose(1, 2))


#: Share of layers as they stand deep in networks of images: many channels on few positions, where most of the memory
#: that is moved are weights; and of short series and small images in large batches, as rows of a table are. Of shapes
#: drawn evenly, hardly any are either.
DEEP, MANY = 0.3, 0.1
#: Share of layers that cut an image into patches, or put them together again; and of those that are transposed.
PATCHES, TRANSPOSED = 0.1, 0.15
#: Largest sides of other images, by dimensions.
LARGEST = {1: 2048, 2: 224, 3: 24}
CONVOLUTIONS: dict[int, tuple[Callable[..., nn.Module], Callable[..., nn.Module]]] = {
    1: (nn.Conv1d, nn.ConvTranspose1d), 2: (nn.Conv2d, nn.ConvTranspose2d), 3: (nn.Conv3d, nn.ConvTranspose3d),
}  # fmt: skip


def draw_convolution(random: Random, limit: Limit) -> Branch:
    """A convolution of a random shape."""
    dims = random.choice((1, 1, 1, 2, 2, 2, 2, 2, 3))
    depthwise, transposed = random.random() < 0.2, random.random() < TRANSPOSED
    place, patches = random.random() if dims < 3 else 1.0, random.random() < PATCHES
    deep, many = place < DEEP, DEEP <= place < DEEP + MANY
    kernel = random.choice((2, 2, 4, 8, 16) if patches else (1, 3, 3, 4) if deep else (1, 3, 3, 3, 4, 5, 7))
    cin, cout = widths(random, 64 if deep else 2, 64 if many else 1024, 2)
    if not deep and random.random() < 0.25:
        cin = random.choice((1, 1, 3))
    cout = cin if depthwise else cout
    groups = cin if depthwise else (4 if random.random() < 0.05 and cin % 4 == cout % 4 == 0 else 1)
    stride = kernel if patches else random.choice((2, 2, 1) if kernel == 4 else (1, 1, 1, 2))
    dilation = 1 if deep or patches else random.choice((1, 1, 1, 1, 2))
    padding = 0 if patches else dilation * ((kernel - 1) // 2)
    side = log_int(random, max(dilation * (kernel - 1) + 1 - 2 * padding, 1), 32 if deep or many else LARGEST[dims])
    batch = log_int(random, 256 if many else 1, 64 if deep else 8192 if many else 4096 if dims == 1 else 128)
    bias = random.random() < 0.6
    out = (side * stride if transposed else max(side // stride, 1)) ** dims
    flops = 2.0 * batch * cin * cout / groups * kernel**dims * (side**dims if transposed else out)
    moved = 4.0 * (batch * (cin * side**dims + cout * out) + cin * cout / groups * kernel**dims)
    # Few channels leave vector units empty: such layers take longer than their arithmetic says.
    flops *= max(16 / max(cin / groups, 1), 1) ** 0.5 * max(16 / max(cout / groups, 1), 1) ** 0.5
    layer = CONVOLUTIONS[dims][transposed]
    geometry: dict[str, Any] = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    shape = f"n{batch} {cin}->{cout} groups {groups} kernel {kernel} stride {stride} side {side}"
    return Branch(
        f"conv{dims}d{' transposed' * transposed} {shape}",
        partial(layer, cin, cout, kernel, bias=bias, **geometry),
        (batch, cin, *(side,) * dims),
        flops,
        moved,
    )


def _group_norm(channels: int) -> nn.Module:
    return nn.GroupNorm(4 if channels % 4 == 0 else 1, channels)


NORMS: dict[str, Callable[[int], nn.Module]] = {
    "batch1d": nn.BatchNorm1d,
    "batch2d": nn.BatchNorm2d,
    "layer": nn.LayerNorm,
    "rms": nn.RMSNorm,
    "group": _group_norm,
}


def draw_normalization(random: Random, limit: Limit) -> Branch:
    """A normalization layer on a random shape."""
    kind = random.choice(("batch1d", "batch2d", "batch2d", "layer", "layer", "group", "rms"))
    numel, channels = log_int(random, 64, limit.most_elements), log_int(random, 4, 2048)
    shape: tuple[int, ...] = (max(numel // channels, 2), channels)
    if kind in ("batch2d", "group"):
        side = log_int(random, 2, 64)
        shape = (max(numel // (channels * side * side), 2), channels, side, side)
    size = math.prod(shape)
    return Branch(f"{kind} {shape}", partial(NORMS[kind], channels), shape, 8.0 * size, 12.0 * size)


#: Share of the maxima that are taken of what has passed a rectifier, as in most networks: a maximum is found by
#: comparing one by one, and where many are zero the processor guesses right more often, and takes up to a third less.
RECTIFIED = 0.7


def draw_pooling(random: Random, limit: Limit) -> Branch:
    """A pooling or interpolation layer on a random shape."""
    kind = random.choice(("max1d", "max2d", "max2d", "avg2d", "adaptive", "upsample", "avg1d"))
    window = random.choice((2, 2, 3, 4))
    dims = 1 if kind.endswith("1d") else 2
    numel, channels = log_int(random, 64, limit.most_elements // 8), log_int(random, 1, 512)
    side = log_int(random, max(window, 4), 4096 if dims == 1 else 112)
    shape = (max(numel // (channels * side**dims), 1), channels, *(side,) * dims)
    result, mode = random.choice((1, 1, 2, 4)), random.choice(("nearest", "bilinear"))
    overlapping = kind == "max2d" and random.random() < 0.3
    rectified = kind.startswith("max") and random.random() < RECTIFIED
    layers: dict[str, Callable[[], nn.Module]] = {
        "max1d": partial(nn.MaxPool1d, window),
        "avg1d": partial(nn.AvgPool1d, window),
        "max2d": partial(nn.MaxPool2d, 3, stride=2, padding=1) if overlapping else partial(nn.MaxPool2d, window),
        "avg2d": partial(nn.AvgPool2d, window),
        "adaptive": partial(nn.AdaptiveAvgPool2d, result),
        "upsample": partial(nn.Upsample, scale_factor=2, mode=mode),
    }
    size = math.prod(shape) * (4 if kind == "upsample" else 1)
    name = f"{kind} {shape} window {window}" + " rectified" * rectified
    return Branch(name, layers[kind], shape, 40.0 * size, 12.0 * size, made=torch.relu if rectified else None)


RECURRENT: dict[str, Callable[..., nn.RNNBase]] = {"lstm": nn.LSTM, "gru": nn.GRU, "rnn": nn.RNN}
CELLS: dict[str, Callable[..., nn.RNNCellBase]] = {"lstm": nn.LSTMCell, "gru": nn.GRUCell, "rnn": nn.RNNCell}
GATES = {"lstm": 4, "gru": 3, "rnn": 1}
#: Share of layers that are given a single sequence, as streams and servers give them.
ONE_SEQUENCE = 0.25
#: Share of layers as wide, and of batches as large, as people train: of shapes drawn evenly, few are.
BATCHED = 0.4
#: FLOPs one time step costs beyond its arithmetic: a handful of small kernels, each recorded.
PER_STEP = 6e6


class Unrolled(nn.Module):
    """A cell in a Python loop over the first dimension."""

    def __init__(self, cell: nn.RNNCellBase) -> None:
        super().__init__()
        self.cell = cell

    def forward(self, sequence: Tensor) -> Any:
        state: Any = None
        for x in sequence:
            state = self.cell(x, state)
        return state[0] if isinstance(state, tuple) else state


def draw_recurrent(random: Random, limit: Limit) -> Branch:
    """A recurrent layer, or a cell in a loop, of a random shape."""
    kind = random.choice(("lstm", "lstm", "gru", "gru", "rnn"))
    length, batch = log_int(random, 2, 128), 1 if random.random() < ONE_SEQUENCE else log_int(random, 1, 512)
    width, (hidden,) = log_int(random, 1, 512), widths(random, 4, 512, 1)
    if random.random() < BATCHED:
        length, batch = log_int(random, 4, 64), log_int(random, 16, 512)
        width, (hidden,) = log_int(random, 1, 256), widths(random, 32, 512, 1)
    layers, both = random.choice((1, 1, 2, 3)), random.random() < 0.25
    if random.random() < 0.25:
        length = min(length, 16)
        build: Callable[[], nn.Module] = partial(_unrolled, kind, width, hidden)
        flops = length * (2.0 * batch * GATES[kind] * hidden * (width + hidden) + PER_STEP)
        moved, name = 40.0 * length * batch * hidden, f"{kind} cell {length}x{batch}x{width}->{hidden}"
    else:
        stacked = layers * (1 + both)
        inputs = width + hidden * (layers - 1) * (1 + both)
        build = partial(RECURRENT[kind], width, hidden, num_layers=layers, bidirectional=both)
        flops = 2.0 * length * batch * GATES[kind] * hidden * (inputs + hidden * layers) * (1 + both)
        flops, moved = flops + PER_STEP * length * stacked, 40.0 * length * batch * hidden * stacked
        name = f"{kind} {length}x{batch}x{width}->{hidden} layers {layers}{' both ways' * both}"
    return Branch(name, build, (length, batch, width), flops, moved)


def _unrolled(kind: str, width: int, hidden: int) -> nn.Module:
    return Unrolled(CELLS[kind](width, hidden))


#: Longest sequences.
LONGEST, LONGEST_ON_ACCELERATOR = 1024, 8192


class Attention(nn.Module):
    """Attention proper, on strided views of one projection, as layers make: batch x length x (3 * heads * width)."""

    def __init__(self, heads: int, causal: bool, masked: bool, dropout: float) -> None:
        super().__init__()
        self.heads, self.causal, self.masked, self.dropout = heads, causal, masked, dropout

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in x.chunk(3, dim=-1))
        mask = torch.zeros(x.shape[1], x.shape[1], device=x.device, dtype=x.dtype) if self.masked else None
        dropout = self.dropout if self.training else 0.0
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout, is_causal=self.causal)
        return mixed.transpose(1, 2).flatten(2)


def draw_attention(random: Random, limit: Limit) -> Branch:
    """Attention on a random shape."""
    batch, heads = log_int(random, 1, 64), log_int(random, 1, 16)
    longest = LONGEST if limit.accelerator is None else LONGEST_ON_ACCELERATOR
    length, width = log_int(random, 2, longest), random.choice((8, 16, 32, 64, 64, 96, 128))
    causal = random.random() < 0.3
    masked = not causal and random.random() < 0.3
    dropout = 0.1 if random.random() < 0.25 else 0.0
    flops = 4.0 * batch * heads * length * length * width + 20.0 * batch * heads * length * length
    moved = 16.0 * batch * heads * length * width
    kind = " causal" * causal + " masked" * masked + " dropout" * bool(dropout)
    name, shape = f"attention {batch}x{heads}x{length}x{width}{kind}", (batch, length, 3 * heads * width)
    return Branch(name, partial(Attention, heads, causal, masked, dropout), shape, flops, moved)


class SelfAttention(nn.Module):
    """``nn.MultiheadAttention`` of a sequence with itself."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)

    def forward(self, x: Tensor) -> Any:
        return self.attention(x, x, x, need_weights=False)[0]


def draw_encoder(random: Random, limit: Limit) -> Branch:
    """A layer of a transformer of a random shape, in inference."""
    heads, width = random.choice((2, 4, 8)), random.choice((8, 16, 32, 64))
    batch, length, model = log_int(random, 1, 256), log_int(random, 2, 512), heads * width
    tokens, shape = float(batch * length), (batch, length, model)
    flops, moved = tokens * model * (8.0 * model + 4.0 * length), 4.0 * tokens * (6 * model + heads * length)
    if random.random() < 0.2:
        name = f"attention layer {batch}x{length}x{model} heads {heads}"
        return Branch(name, partial(SelfAttention, model, heads), shape, flops, moved, trains=False)
    hidden = log_int(random, 8, 4 * model) if random.random() < 0.5 else random.choice((1, 2, 4)) * model
    activation, first = random.choice(("relu", "gelu")), random.random() < 0.5
    name = f"encoder layer {batch}x{length}x{model} heads {heads} feed-forward {hidden}"
    layer = partial(nn.TransformerEncoderLayer, model, heads, hidden, activation=activation, batch_first=True)
    flops, moved = flops + 4.0 * tokens * hidden * model, moved + 8.0 * tokens * hidden
    return Branch(name, partial(layer, norm_first=first), shape, flops, moved, trains=False)


#: By how often training scripts use them.
OPTIMIZERS = (
    "adam", "adam", "adam", "adamw", "adamw", "sgd", "sgd", "rmsprop", "adagrad", "adadelta", "nadam", "radam",
    "adamax",
)  # fmt: skip
#: Optimizers with a kernel that does the whole update, as scripts for GPUs ask for, and the share of their probes on an
#: accelerator that take it.
WITH_FUSED, FUSED = ("adam", "adamw", "sgd"), 0.4
#: Most tensors of a probe. An accelerator updates all of them together, and networks there have hundreds.
MOST_TENSORS, MOST_ON_ACCELERATOR = 64, 512
#: Share of probes that exceed the limit on purpose.
LARGE = 0.08


class Bag(nn.Module):
    """``count`` parameters of ``numel`` elements each; every one gets a gradient at the cost of one add."""

    def __init__(self, count: int, numel: int) -> None:
        super().__init__()
        self.tensors = nn.ParameterList([nn.Parameter(torch.randn(numel)) for _ in range(count)])

    def forward(self, x: Tensor) -> Tensor:
        for p in self.tensors:
            x = x + p
        return x


def propose_update(random: Random, limit: Limit) -> Probe:
    """Some equal parameters and a random optimizer."""
    name = random.choice(OPTIMIZERS)
    on_accelerator = limit.accelerator is not None
    fused = on_accelerator and name in WITH_FUSED and random.random() < FUSED
    tensors = MOST_ON_ACCELERATOR if on_accelerator else MOST_TENSORS
    most = max(int(limit.bytes / 100), 16)  # an Adam step and its gradients move about a hundred bytes per element
    if random.random() < LARGE:  # far more than any cache holds, as the weights of large models are
        numel, count = most, random.randint(2, 6)
    else:
        numel = log_int(random, 1, min(1 << 22, most))
        count = log_int(random, 1, max(1, min(tensors, most // numel)))
    title = f"{name}{' fused' * fused} {count} x {numel}"
    return Probe("optimizer", title, partial(Bag, count, numel), partial(_vector, numel), "train", name, fused=fused)


def _vector(numel: int) -> tuple[Tensor]:
    return (tensor(numel),)
