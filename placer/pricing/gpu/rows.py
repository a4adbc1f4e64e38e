"""Work -> the rows that the device model prices: a kind of kernel, a label, and the numbers its time depends on.

Most ops are one row. The gradient of a convolution is two, one for each operand. Calibration makes the samples that the
model is fitted to with the same function, so that fitting and pricing describe an op alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from placer.pricing.families import FAMILIES
from placer.pricing.kernels import op_of
from placer.pricing.work import Work

#: Numbers of a row by kind, in the order of ``Row.columns``. All but flags are amounts (elements, bytes, FLOPs).
COLUMNS = {
    "product": ("flops", "bytes", "batch", "m", "n", "k", "a_transposed", "b_transposed"),
    "convolution": (
        "flops", "bytes", "batch", "m", "n", "k", "channels_last", "to_input", "to_weight", "kernel", "stride",
        "in_channels", "out_channels", "dilated", "one_d", "three_d", "image",
    ),
    "depthwise": (
        "flops", "bytes", "batch", "m", "n", "k", "channels_last", "to_input", "to_weight", "kernel", "stride",
        "in_channels", "out_channels", "dilated", "one_d", "three_d", "image",
    ),
    "attention": ("flops", "bytes", "batch", "length", "source", "width", "causal", "masked", "dropout", "backward"),
    "recurrent": ("flops", "bytes", "length", "batch", "input", "hidden", "stacked", "weights", "backward"),
    "memory": ("flops", "bytes", "numel", "second", "inner", "strided", "broadcast", "flag"),
}  # fmt: skip
#: Families whose rows have a kind of their own; any other is bound by memory.
_KINDS = {"matmul": "product", "attention": "attention", "recurrent": "recurrent"}


class Row(NamedTuple):
    """What one kernel, or a few that belong together, do. ``dtype`` is that of their floating-point numbers."""

    kind: str
    label: str
    dtype: str
    columns: tuple[float, ...]


def rows_of(work: Work) -> tuple[Row, ...]:
    """The rows of one op; none for a view, which launches no kernel."""
    dtype = work.dtype.partition("+")[0]
    if work.family == "view":
        return ()
    if work.family in ("convolution", "convolution_backward"):
        return tuple(_convolution(work, dtype))
    kind = _KINDS.get(work.family, "memory")
    columns = {"product": _product, "attention": _attention, "recurrent": _recurrent, "memory": _memory}[kind](work)
    return (Row(kind, label_of(work), dtype, (work.flops, work.bytes, *columns)),)


def label_of(work: Work) -> str:
    """``family:op``, in place or not: the name under which the model knows an op."""
    return f"{work.family}:{op_of(work.op).removeprefix('aten::').rstrip('_')}"


def _product(work: Work) -> tuple[float, ...]:
    return (*work.sizes[:4], *work.flags[:2])


def _attention(work: Work) -> tuple[float, ...]:
    return (*work.sizes[:4], *work.flags[:3], float(op_of(work.op).endswith("_backward")))


def _recurrent(work: Work) -> tuple[float, ...]:
    length, batch, width, hidden, stacked, _, weights = work.sizes[:7]
    return length, batch, width, hidden, stacked, weights, work.flags[0]


def _memory(work: Work) -> tuple[float, ...]:
    """Elements, then what else sets how a kernel walks them: its rows, channels, results or the width of an index."""
    if work.family in ("elementwise", "random"):
        numel, _, inner, block = work.sizes[:4]
        return numel, block, inner, work.flags[0], work.flags[1], work.flags[2]
    if work.family == "indexing":
        moved, table, _, width = work.sizes[:4]
        return moved, table, width, 0.0, work.flags[1], work.flags[0]
    own, flags = FAMILIES[work.family].sizes, FAMILIES[work.family].flags
    sizes = dict(zip(own, work.sizes, strict=False))
    set_flags = dict(zip(flags, work.flags, strict=False))
    first, second, *_ = (*work.sizes[: len(own)], 1.0, 1.0)
    flag = set_flags.get("training", set_flags.get("inner_survives", set_flags.get("fused", 0.0)))
    return first, second, sizes.get("window", 1.0), set_flags.get("strided", 0.0), 0.0, flag


def _convolution(work: Work, dtype: str) -> Iterator[Row]:
    """A forward is one row, a gradient one for the weight and one for the image where that is asked for.

    Each is a product of matrices (Chetlur et al., "cuDNN: Efficient Primitives for Deep Learning", 2014). The forward
    of a transposed convolution is the gradient of a plain one to its image.
    """
    n, cin, cout, groups, kernel, positions, image, weights, result = work.sizes[:9]
    one_d, three_d, transposed, strided, dilated = work.flags[:5]
    large = image
    if transposed:
        large = result / max(n * cout * groups, 1.0)
        cin, cout = cout, cin
    small = positions
    backward = work.family == "convolution_backward"
    size = 2.0 if dtype in ("float16", "bfloat16") else 8.0 if dtype == "float64" else 4.0
    flops = 2.0 * n * cin * cout * groups * kernel * small
    moved = size * (n * groups * (cin * large + cout * small) + weights)
    forward = (n * small, cout, cin * kernel), 0.0, 0.0
    to_input = (n * large, cin, cout * kernel), 1.0, 0.0
    to_weight = (cout, cin * kernel, n * small), 0.0, 1.0
    if backward:
        parts = [to_weight, *([(forward if transposed else to_input)] if work.flags[6] else [])]
    else:
        parts = [to_input if transposed else forward]
    kind = "depthwise" if groups > 1.0 and min(cin, cout) <= 1.0 else "convolution"
    stride = large / max(small, 1.0)
    for (m, columns, k), image_gradient, weight_gradient in parts:
        yield Row(kind, kind, dtype, (
            flops, moved, groups, m, columns, k, strided, image_gradient, weight_gradient, kernel, stride, cin, cout,
            dilated, one_d, three_d, n,
        ))  # fmt: skip

