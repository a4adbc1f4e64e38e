"""Typed shapes: what an op call works on, in named numbers; and the families of ops, each with shapes of one type.

Members of a family take time for the same reasons, and learn together. Which family an op is of stands in the table of
ops.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

from placer.pricing.shapes.layers import Attention, Encoder, Matrices, Recurrent, Transform
from placer.pricing.shapes.loops import Loop, Normalization, OrderedRows, RandomNumbers, Reduction, Rows, Windows
from placer.pricing.shapes.moves import Index, Other, Update, View
from placer.pricing.shapes.products import Convolution, ConvolutionGradient, Product
from placer.pricing.shapes.shape import Shape

#: What has a switch of TF32 of its own: matrix products, convolutions and recurrent layers.
Switch = Literal["matmul", "conv", "rnn"]


class Family(NamedTuple):
    """What pricing has to know of all ops of a family.

    ``shape``: the type of its shapes. ``mps``: how torch runs it on an Apple GPU. ``kernels``: the kind of rows that a
    GPU's networks price it by. ``library``: the name of the rate of loading what runs it. ``switch``: the one of TF32
    that it obeys; cuDNN's two are on by default, that of products is off. ``multiplies``: tensor cores serve it; other
    families add up half precision at the rate of float32. ``described``: its ops do what its amounts say, all of it,
    whether the table has them or not. ``fusable``: ``torch.compile`` writes kernels for it; other ops stay calls of a
    library. ``mps_rows``: published rows of such GPUs have ops of it.
    """

    shape: type[Shape]
    mps: Literal["kernel", "graph", "large graph", "updates", "view"] = "graph"
    kernels: str = "memory"
    library: str = ""
    switch: Switch | None = None
    multiplies: bool = False
    described: bool = False
    fusable: bool = False
    mps_rows: bool = False


#: All families by name.
FAMILIES: Mapping[str, Family] = {
    "view": Family(View, "view"),
    "matmul": Family(
        Product, "graph", "product", "product", "matmul", multiplies=True, described=True, mps_rows=True,
    ),
    "convolution": Family(
        Convolution, "large graph", "convolution", "convolution", "conv",
        multiplies=True, described=True, mps_rows=True,
    ),
    "convolution_backward": Family(
        ConvolutionGradient, "large graph", "convolution", "convolution", "conv", multiplies=True, described=True,
    ),
    "elementwise": Family(Loop, "kernel", fusable=True, mps_rows=True),
    "reduction": Family(Reduction, fusable=True, mps_rows=True),
    "softmax": Family(Rows, described=True, fusable=True, mps_rows=True),
    "normalization": Family(Normalization, "large graph", described=True, fusable=True, mps_rows=True),
    "pooling": Family(Windows, described=True, fusable=True),
    "indexing": Family(Index, "kernel", fusable=True, mps_rows=True),
    "attention": Family(Attention, "graph", "attention", multiplies=True, described=True, mps_rows=True),
    "encoder": Family(Encoder, "large graph", switch="matmul", multiplies=True, described=True),
    "recurrent": Family(Recurrent, "graph", "recurrent", "convolution", "rnn", multiplies=True, described=True),
    "linear_algebra": Family(Matrices, library="linear_algebra"),
    "fourier": Family(Transform, library="fourier"),
    "random": Family(RandomNumbers, "kernel", fusable=True),
    "sorting": Family(OrderedRows, mps_rows=True),
    "optimizer": Family(Update, "updates", described=True),
    "quantized": Family(Other),
    "other": Family(Other),
}  # fmt: skip
