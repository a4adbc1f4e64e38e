"""The families of ops: their members take time for the same reasons, have shapes of one type, and learn together.

Which family an op is of stands in the table of ops.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

from placer.pricing import shapes
from placer.pricing.shapes import Shape

#: What has a switch of TF32 of its own: matrix products, convolutions and recurrent layers.
Switch = Literal["matmul", "conv", "rnn"]


class Family(NamedTuple):
    """What pricing has to know of all ops of a family.

    ``shape``: the type of its shapes. ``kernels``: the kind of rows that a GPU's networks price it by. ``library``: the
    name of the rate of loading what runs it. ``switch``: the one of TF32 that it obeys; cuDNN's two are on by default,
    that of products is off. ``multiplies``: tensor cores serve it; other families add up half precision at the rate of
    float32. ``described``: its ops do what its amounts say, all of it, whether the table has them or not. ``fusable``:
    ``torch.compile`` writes kernels for it; other ops stay calls of a library. ``mps``: how torch runs it on an Apple
    GPU. ``mps_rows``: published rows of such GPUs have ops of it.
    """

    shape: type[Shape]
    kernels: str = "memory"
    library: str = ""
    switch: Switch | None = None
    multiplies: bool = False
    described: bool = False
    fusable: bool = False
    mps: Literal["kernel", "graph", "large graph", "updates", "view"] = "graph"
    mps_rows: bool = False


#: All families by name.
FAMILIES: Mapping[str, Family] = {
    "view": Family(shapes.View, mps="view"),
    "matmul": Family(shapes.Product, "product", "product", "matmul", multiplies=True, described=True, mps_rows=True),
    "convolution": Family(
        shapes.Convolution,
        "convolution",
        "convolution",
        "conv",
        multiplies=True,
        described=True,
        mps="large graph",
        mps_rows=True,
    ),
    "convolution_backward": Family(
        shapes.ConvolutionGradient,
        "convolution",
        "convolution",
        "conv",
        multiplies=True,
        described=True,
        mps="large graph",
    ),
    "elementwise": Family(shapes.Loop, fusable=True, mps="kernel", mps_rows=True),
    "reduction": Family(shapes.Reduction, fusable=True, mps_rows=True),
    "softmax": Family(shapes.Rows, described=True, fusable=True, mps_rows=True),
    "normalization": Family(shapes.Normalization, described=True, fusable=True, mps="large graph", mps_rows=True),
    "pooling": Family(shapes.Windows, described=True, fusable=True),
    "indexing": Family(shapes.Index, fusable=True, mps="kernel", mps_rows=True),
    "attention": Family(shapes.Attention, "attention", multiplies=True, described=True, mps_rows=True),
    "encoder": Family(shapes.Encoder, switch="matmul", multiplies=True, described=True, mps="large graph"),
    "recurrent": Family(shapes.Recurrent, "recurrent", "convolution", "rnn", multiplies=True, described=True),
    "linear_algebra": Family(shapes.Matrices, library="linear_algebra"),
    "fourier": Family(shapes.Transform, library="fourier"),
    "random": Family(shapes.RandomNumbers, fusable=True, mps="kernel"),
    "sorting": Family(shapes.OrderedRows, mps_rows=True),
    "optimizer": Family(shapes.Update, described=True, mps="updates"),
    "quantized": Family(shapes.Quantized),
    "other": Family(shapes.Other),
}
