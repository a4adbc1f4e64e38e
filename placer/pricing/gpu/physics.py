"""Work -> rows of kernels -> the time that physics allows, and dimensionless inputs of the learnt part.

A row takes ``launch + max(arithmetic, memory) * exp(learnt)`` seconds. Peaks are those of the data sheet, below which a
GPU's power limit holds the clock where many units switch at once. Calibration makes the samples that the model is
fitted to with the same functions, so that fitting and pricing describe an op alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from placer.pricing.physics import TF32
from placer.pricing.shapes import FAMILIES
from placer.pricing.shapes.layers import Recurrent
from placer.pricing.shapes.moves import Update
from placer.pricing.shapes.products import Convolution, ConvolutionGradient, Product
from placer.pricing.shapes.shape import Work
from placer.pricing.work import op_of
from placer.profile import DataSheet

Array = NDArray[np.floating[Any]]

#: Numbers of a row by kind, in the order of ``Row.columns``. All but flags are amounts (elements, bytes, FLOPs).
#: ``kernels`` follow each other, ``loads`` follow each other in the busiest thread.
_ALL = ("flops", "bytes", "kernels", "loads")
COLUMNS = {
    "product": (*_ALL, "batch", "m", "n", "k", "a_transposed", "b_transposed"),
    "convolution": (
        *_ALL, "batch", "m", "n", "k", "channels_last", "to_input", "to_weight", "kernel", "stride",
        "in_channels", "out_channels", "dilated", "one_d", "three_d", "image",
    ),
    "attention": (*_ALL, "batch", "length", "source", "width", "causal", "masked", "dropout", "backward"),
    "recurrent": (*_ALL, "length", "batch", "input", "hidden", "stacked", "weights", "backward"),
    "memory": (*_ALL, "numel", "second", "inner", "strided", "broadcast", "flag"),
}  # fmt: skip
COLUMNS["depthwise"] = COLUMNS["convolution"]


class Row(NamedTuple):
    """What one kernel, or a few that belong together, do. ``dtype`` is that of their floating-point numbers."""

    kind: str
    label: str
    dtype: str
    columns: tuple[float, ...]


def rows_of(work: Work) -> tuple[Row, ...]:
    """The rows of one op; none for a view, which launches no kernel."""
    dtype, shape = work.dtype.partition("+")[0], work.shape
    if work.family == "view" or (work.effort is not None and work.effort.kernels == 0.0):
        return ()
    if isinstance(shape, Convolution):
        return tuple(_convolution_rows(shape, dtype))
    kind, kernels, flops, moved = FAMILIES[work.family].kernels, 1.0, work.flops, work.bytes
    if isinstance(shape, Product) and "complex" in dtype:
        flops *= _COMPLEX_FLOPS
    elif isinstance(shape, Recurrent):
        kernels = max(shape.steps * _kernels_of_time_step(work, shape), 1.0)
    elif isinstance(shape, Update):
        kernels = shape.launches(work)
    elif kind == "memory" and work.effort is not None:
        flops, moved, kernels = work.effort.flops, work.effort.bytes, work.effort.kernels
    if kind == "memory":
        columns = shape.walk
    else:
        names = COLUMNS[kind][len(_ALL) :]
        columns = tuple(float(work.row.backward if name == "backward" else getattr(shape, name)) for name in names)
    return (Row(kind, label_of(work), dtype, (flops, moved, kernels, work.loads, *columns)),)


def _kernels_of_time_step(work: Work, shape: Recurrent) -> float:
    """Kernels of one time step of one layer: a product, the gates, and what lies between them.

    A kernel that runs all time steps waits for all of its blocks once a time step.
    """
    wait = _PERSISTENT if shape.persistent(work) else _PER_TIME_STEP
    return 2.0 * wait if shape.backward else wait


def label_of(work: Work) -> str:
    """``family:op``, in place or not: the name under which the model knows an op. A batch of one product is one."""
    name = op_of(work.op).removeprefix("aten::").rstrip("_")
    if isinstance(work.shape, Product) and work.shape.batch == 1.0:
        name = _OF_ONE_PRODUCT.get(name, name)
    return f"{work.family}:{name}"


#: Kernels of a time step, and what a step takes inside one kernel that runs them all, in kernels.
_PER_TIME_STEP, _PERSISTENT = 3.0, 0.6
#: Real multiply-adds of a complex one.
_COMPLEX_FLOPS = 4.0
_OF_ONE_PRODUCT = {"bmm": "mm", "baddbmm": "addmm"}


def _convolution_rows(shape: Convolution, dtype: str) -> Iterator[Row]:
    """A forward is one row, a gradient one for the weight and one for the image where that is asked for.

    Each is a product of matrices (Chetlur et al., "cuDNN: Efficient Primitives for Deep Learning", 2014). The forward
    of a transposed convolution is the gradient of a plain one to its image.
    """
    n, groups, kernel, small, large = shape.batch, shape.groups, shape.kernel, shape.positions, shape.input_positions
    cin, cout, transposed = shape.in_channels, shape.out_channels, shape.transposed
    if transposed:
        large = shape.result / max(n * cout * groups, 1.0)
        cin, cout = cout, cin
    size = 2.0 if dtype in ("float16", "bfloat16") else 8.0 if dtype == "float64" else 4.0
    flops = 2.0 * n * cin * cout * groups * kernel * small
    moved = size * (n * groups * (cin * large + cout * small) + shape.weights)
    forward = (n * small, cout, cin * kernel), 0.0, 0.0
    to_input = (n * large, cin, cout * kernel), 1.0, 0.0
    to_weight = (cout, cin * kernel, n * small), 0.0, 1.0
    if isinstance(shape, ConvolutionGradient):
        parts = [to_weight, *([(forward if transposed else to_input)] if shape.to_input else [])]
    else:
        parts = [to_input if transposed else forward]
    kind = "depthwise" if groups > 1.0 and min(cin, cout) <= 1.0 else "convolution"
    stride = large / max(small, 1.0)
    label = f"{kind}:{1 if shape.one_d else 3 if shape.three_d else 2}d"
    label += "_transposed" if transposed else ""
    label += "_grouped" if groups > 1.0 and kind == "convolution" else ""
    for (m, columns, k), image_gradient, weight_gradient in parts:
        yield Row(
            kind,
            label,
            dtype,
            (
                flops,
                moved,
                1.0,
                0.0,
                groups,
                m,
                columns,
                k,
                float(shape.strided),
                image_gradient,
                weight_gradient,
                kernel,
                stride,
                cin,
                cout,
                float(shape.dilated),
                float(shape.one_d),
                float(shape.three_d),
                n,
            ),
        )


#: Seconds of a kernel that does next to nothing, from its start to the start of the next one in the queue.
LAUNCH = 2.5e-6
#: Seconds of a load that the next one waits for, with what a thread does in between. Layer norms of a few long rows
#: take 0.48 us for each on an H200, 0.6 on a T4 and an A100.
LATENCY = 5e-7
#: Bytes that L2 gives an SM in a clock, and the share of it that an op's operands fill before they miss.
L2_BYTES_PER_CLOCK, L2_SHARE = 32.0, 0.7
#: Sizes of a result's tiles (rows, columns) among which libraries choose.
TILES = ((128.0, 128.0), (64.0, 64.0), (256.0, 128.0), (32.0, 32.0))
#: Columns of the narrowest tile of a convolution's result, and of one in three dimensions.
_NARROWEST, _NARROWEST_3D = 32.0, 64.0
#: Sustained FLOP/s per watt of the power limit: float32 arithmetic, and tensor cores at half precision. The fastest
#: fiftieth of large published products (all sides 2,048 or more) reaches it on T4, V100, A100, A40, L40S, H100, B200
#: and RTX PRO 6000; TF32 takes twice as much per FLOP.
_PER_WATT = {
    "kepler": (0.02e12, 0.0), "maxwell": (0.03e12, 0.0), "pascal": (0.07e12, 0.0), "volta": (0.075e12, 0.6e12),
    "turing": (0.062e12, 0.7e12), "ampere": (0.085e12, 0.45e12), "ga100": (0.08e12, 0.89e12),
    "ada": (0.15e12, 0.82e12), "hopper": (0.08e12, 1.39e12), "blackwell": (0.08e12, 1.8e12),
    "gb20": (0.16e12, 0.92e12),
}  # fmt: skip
#: Seconds that a kernel of few threads takes beside its launch at the most, whatever was learnt. Small kernels of
#: profiler traces that only move memory take up to 5 us, small products that were published up to 4. Attention,
#: convolutions and recurrent layers of few threads take longer: 20 us at the most.
_FEW_THREADS = {
    "memory": 5e-6, "product": 5e-6, "attention": 20e-6, "convolution": 20e-6, "depthwise": 20e-6, "recurrent": 20e-6,
}  # fmt: skip
#: A longer kernel is believed to take up to 30 times what physics allow, and the more the longer these are (seconds):
#: twice as many at ``_LONG``. Steps with convolutions in half precision were published that need hundreds.
_BELIEVED, _LONG = 30.0, 1e-7
#: Sizes that are 0 for an empty batch, and by which others are divided.
_AT_LEAST_1 = ("batch", "m", "n", "k", "image")
#: Share of a peak that the best kernels reach.
_REACHED = 0.97


class Floor(NamedTuple):
    """What physics say of n rows, in seconds: of launching their kernels, of what these do, and the least of it."""

    launch: Array
    seconds: Array
    least: Array


def inputs(kind: str, columns: Array, dtype: str, sheet: DataSheet) -> tuple[Floor, Array]:
    """(what physics say of n rows; n x d inputs of the network), for n x c ``columns`` of one kind and dtype.

    ``dtype`` is ``tf32`` where float32 operands are multiplied by tensor cores.
    """
    c = {name: columns[:, i] for i, name in enumerate(COLUMNS[kind])}
    c |= {name: np.maximum(c[name], 1.0) for name in _AT_LEAST_1 if name in c}
    size = {"float16": 2.0, "bfloat16": 2.0, "float64": 8.0, "complex64": 8.0, "complex128": 16.0}.get(dtype, 4.0)
    bandwidth, l2 = sheet.bandwidth_gbps * 1e9, (sheet.l2_mb + sheet.last_level_cache_mb) * 1e6
    moved = np.maximum(c["bytes"], 1.0)
    cached = 1.0 / (1.0 + (moved / max(L2_SHARE * l2, 1e5)) ** 2)
    from_l2 = max(sheet.sms * sheet.boost_mhz * 1e6 * L2_BYTES_PER_CLOCK, bandwidth)
    memory = moved * (cached / from_l2 + (1.0 - cached) / bandwidth)
    tensor = dtype in ("float16", "bfloat16", TF32) and kind in ("product", "convolution", "attention", "recurrent")
    peak = rate(sheet, dtype, tensor=tensor, matrix=kind == "product")
    arithmetic = np.maximum(c["flops"], 1.0) / peak
    if kind == "convolution":
        arithmetic = arithmetic * _more_work(c)
        if dtype == TF32:  # hardly any kernel in three dimensions takes it
            arithmetic = np.where(c["three_d"] > 0.0, arithmetic * peak / rate(sheet, "", tensor=False), arithmetic)
    waiting = c["loads"] * LATENCY
    seconds = np.maximum(np.maximum(arithmetic, memory), waiting)
    inputs = [
        _log(arithmetic / memory, 8),
        _log(seconds, 0, -20),
        _log(c["bytes"] / max(l2, 1e5), 8),
        _log((waiting + 1e-9) / np.maximum(arithmetic, memory), 8),
    ]
    n = len(columns)
    # Products in TF32 are hardly published. On the same tensor cores, they reach the share of their peak that half
    # precision reaches of its own.
    as_half = size == 2.0 or (dtype == "tf32" and kind == "product")
    flags = (as_half, size == 8.0, dtype == "tf32" and not as_half, tensor and as_half)
    inputs += [np.full(n, v) for v in flags]
    inputs += _OWN[kind](c, sheet, size)
    inputs += [np.full(n, v) for v in _about(sheet)]
    # Operands and results may stay in L2 from one op to the next, and no card runs much above its data sheet.
    least = np.maximum(c["flops"] / peak * _REACHED / _least_work(kind, c), (moved - 2.0 * max(l2, 1e5)) / bandwidth)
    return Floor(LAUNCH * c["kernels"], seconds, least), np.stack(inputs, axis=1)


def _more_work(c: dict[str, Array]) -> Array:
    """Times by which convolutions do more arithmetic than is counted, without cuDNN's benchmark mode.

    A tile's columns are channels, and those it lacks are padded. The gradient of a strided image multiplies the zeros
    between the strides, where no kernel is made for its case: in three dimensions, and in groups.
    """
    narrowest = np.where(c["three_d"] > 0.0, _NARROWEST_3D, _NARROWEST)
    padded = np.ceil(c["n"] / narrowest) * narrowest / c["n"]
    special = (c["three_d"] > 0.0) | (c["batch"] > 1)
    return padded * np.where((c["to_input"] > 0.0) & special, np.maximum(c["stride"], 1.0), 1.0)


def _least_work(kind: str, c: dict[str, Array]) -> Array | float:
    """Times by which kernels do with less arithmetic than is counted.

    Winograd's of 3 x 3 take a quarter of it in tiles of 4 x 4 (Lavin & Gray, "Fast algorithms for convolutional neural
    networks", 2016); a causal mask leaves out half of the scores.
    """
    if kind == "attention":
        return 1.0 + c["causal"]
    if kind == "convolution":
        return np.where((c["kernel"] == 9) & (c["stride"] < 1.5), 4.0, 1.0)
    return 1.0


def kernel_seconds(kind: str, floor: Floor, learnt: Array) -> Array:
    """Seconds of n rows of one kind: their launches, and ``floor.seconds`` x exp(``learnt``) as far as it is believed.

    Published measurements of small kernels hold the time of an event or of a slow host, which no bound of physics tells
    from their own.
    """
    physics = floor.seconds
    most = np.maximum(_FEW_THREADS[kind], _BELIEVED * physics * (1.0 + physics / _LONG))
    seconds: Array = floor.launch + np.maximum(np.minimum(physics * np.exp(learnt), most), floor.least)
    return seconds


def rate(sheet: DataSheet, dtype: str, *, tensor: bool, matrix: bool = False) -> float:
    """FLOP/s that the GPU sustains in ``dtype``: its peak, or what its power limit allows.

    Half precision without tensor cores runs at the rate of float32: cuBLAS and cuDNN add up in float32.
    """
    plain = (sheet.matrix_float32_tflops if matrix else 0.0) or sheet.float32_tflops
    if dtype in ("float64", "complex128"):
        return max(sheet.float64_tflops, sheet.float32_tflops / 64.0) * 1e12
    fast = (
        {
            "float16": sheet.tensor_float16_tflops,
            "bfloat16": sheet.tensor_bfloat16_tflops,
            "tf32": sheet.tensor_tf32_tflops,
        }.get(dtype, 0.0)
        if tensor
        else 0.0
    )
    peak = max(fast, plain) * 1e12 * _REACHED
    by_name = {"GA100": "ga100"}.get(sheet.chip, "gb20" if sheet.chip.startswith("GB20") else sheet.architecture)
    per_watt, per_watt_tensor = _PER_WATT.get(by_name, (0.0, 0.0))
    limit = sheet.watts * (per_watt_tensor * (0.5 if dtype == "tf32" else 1.0) if fast > plain else per_watt)
    return float((peak**-6 + limit**-6) ** (-1 / 6)) if limit > 0.0 else peak


def _about(sheet: DataSheet) -> tuple[float, ...]:
    """What a GPU is: by its numbers, so that one that nobody published is priced as those like it."""
    amd = sheet.vendor != "nvidia"
    old = sheet.architecture in ("kepler", "maxwell", "pascal")
    generation = (6.0 if amd else float(sheet.compute_capability)) / 2.0 - 4.0
    per_sm = (
        sheet.bandwidth_gbps / 20.0,
        max(sheet.l2_mb + sheet.last_level_cache_mb, 0.1) * 4.0,
        sheet.float32_tflops / sheet.boost_mhz * 8000.0,
    )
    tensor = sheet.tensor_float16_tflops / sheet.float32_tflops
    return (
        float(amd),
        float(old),
        float(np.log2(sheet.sms)) - 6.0,
        generation,
        float(np.log2(1.0 + tensor)) - 1.5,
        *(float(np.log2(value / sheet.sms)) for value in per_sm),
    )


def _log(values: Array, most: float, shift: float | None = None) -> Array:
    """log2, cut at ``most`` either way; with a ``shift``, counted from there and not cut."""
    logarithms = np.log2(np.maximum(values, 1e-12))
    return logarithms - shift if shift is not None else np.clip(logarithms, -most, most)


def _waves(c: dict[str, Array], sheet: DataSheet) -> list[Array]:
    """How a result's tiles fill the SMs: rounding of the last wave, padding of the last tiles, waves."""
    inputs: list[Array] = []
    for rows, columns in TILES:
        down, across = np.ceil(c["m"] / rows), np.ceil(c["n"] / columns)
        waves = c["batch"] * down * across / sheet.sms
        inputs.append(_log(np.ceil(waves) / waves, 8))
        inputs.append(_log(down * rows * across * columns / (c["m"] * c["n"]), 12))
        if rows == columns == 128.0:
            inputs.append(_log(waves, 8))
    return inputs


def _aligned(values: Array, *by: int) -> list[Array]:
    return [(values % n == 0).astype(float) for n in by]


def _product(c: dict[str, Array], sheet: DataSheet, _: float) -> list[Array]:
    return [
        *_waves(c, sheet),
        *_aligned(c["k"], 2, 4, 8, 16, 64),
        *_aligned(c["n"], 2, 4, 8, 16, 64),
        *_aligned(c["m"], 8),
        *(_log(c[name], 17) for name in ("m", "n", "k", "batch")),
        _log(c["k"] / np.minimum(c["m"], c["n"]), 8),
        c["a_transposed"],
        c["b_transposed"],
        (c["batch"] > 1).astype(float),
    ]


def _convolution(c: dict[str, Array], sheet: DataSheet, size: float) -> list[Array]:
    positions = np.maximum(np.where(c["to_weight"] > 0.0, c["k"], c["m"]) / c["image"], 1.0)
    side = np.sqrt(positions)
    return [
        *_waves(c, sheet),
        *_aligned(c["in_channels"], 4, 8, 32),
        *_aligned(c["out_channels"], 4, 8, 32),
        *(_log(c[name], 20) for name in ("m", "n", "k", "batch", "in_channels", "out_channels", "image", "kernel")),
        _log(positions, 17),
        _log((np.ceil(side / 4.0) * 4.0 / side) ** 2, 4),
        _log(c["stride"], 8),
        _log(c["flops"] / c["bytes"] * size, 12),
        c["channels_last"],
        c["to_input"],
        c["to_weight"],
        c["dilated"],
        c["one_d"],
        c["three_d"],
        (c["batch"] > 1).astype(float),
        (c["kernel"] == 1).astype(float),
        ((c["kernel"] == 9) & (c["stride"] < 1.5)).astype(float),
    ]


def _attention(c: dict[str, Array], sheet: DataSheet, _: float) -> list[Array]:
    return [
        _log(c["batch"] * np.ceil(c["length"] / 128.0) / sheet.sms, 10),
        *(_log(c[name], 17) for name in ("batch", "length", "source", "width")),
        *(c[name] for name in ("causal", "masked", "dropout", "backward")),
        (c["length"] == 1).astype(float),
    ]


def _recurrent(c: dict[str, Array], sheet: DataSheet, _: float) -> list[Array]:
    return [
        *(_log(c[name], 17) for name in ("length", "batch", "input", "hidden", "stacked")),
        c["backward"],
        _log(c["batch"] * c["hidden"] / sheet.sms, 12),
    ]


def _memory(c: dict[str, Array], sheet: DataSheet, size: float) -> list[Array]:
    second = np.maximum(c["second"], 1.0)
    return [
        _log(c["numel"] / sheet.sms / 2048.0, 12),
        _log(c["second"], 24),
        _log(c["inner"], 12),
        _log(c["bytes"] / np.maximum(c["numel"], 1.0), 6),
        c["strided"],
        c["broadcast"],
        c["flag"],
        _log(c["second"] / sheet.sms, 12),
        _log(np.exp2(np.ceil(np.log2(second))) / second, 8),
        *_aligned(c["second"], 4),
    ]


_OWN = {
    "product": _product, "convolution": _convolution, "depthwise": _convolution, "attention": _attention,
    "recurrent": _recurrent, "memory": _memory,
}  # fmt: skip
