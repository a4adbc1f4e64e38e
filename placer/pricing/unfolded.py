"""Convolutions on CPUs for which torch comes without oneDNN, as Apple's.

torch gives those in float32 of 16 images and more to NNPACK (``use_nnpack`` in ATen/native/Convolution.cpp), which
transforms tiles of 8 x 8 or 16 x 16 numbers and multiplies them on one core; a kernel of one row wastes seven eighths
of a tile. For all others it unfolds the windows of each image into a matrix, and lets Accelerate multiply that by the
weights (``slow_conv2d_forward_cpu`` in ATen/native/ConvolutionMM2d.cpp); gradients are made so whatever the batch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from placer.pricing.shapes import Convolution, ConvolutionGradient
from placer.pricing.work import Work

#: Rates of a CPU that unfolds: FLOP/s of products, bytes/s that all cores unfold, seconds of a core's cycle.
PRODUCTS, UNFOLDED, CORE_CYCLE = "unfolded/flops", "unfolded/bytes_per_second", "unfolded/cycle_seconds"
#: Bytes that a core unfolds in a cycle, 3.8 GB/s of an M1's: 279 MB take 8 to 43 ms on ten chips
#: (TristanBilot/mlx-benchmark).
BYTES_PER_CYCLE = 1.2
#: Images from which on NNPACK is asked, and the longest side of its kernels.
LEAST_IMAGES, LONGEST_SIDE = 16, 16
#: NNPACK: cycles of a number that is transformed, FLOPs of a cycle, cycles of a number of image and result. Fitted to
#: 63 published times on nine of Apple's chips, off by 17 % in the median, and by 23 % on 42 of others (same source).
TRANSFORMED, MULTIPLIED, LAID_OUT = 1.9, 27.0, 1.9
#: FLOPs of a number of a tile for each pair of channels: of complex ones, and of those of Winograd's real ones.
FOURIER, WINOGRAD = 4.0, 2.0
#: Channels of the result that a matrix unit holds: fewer take as long.
UNIT = 16.0
#: Ops that a group of channels is, of which torch makes a convolution each.
OPS_OF_GROUP = 8.0


def unfolded(work: Work, rates: Mapping[str, float]) -> Convolution | None:
    """The shape of a convolution, or of a gradient of one, on a CPU of which ``rates`` says that it unfolds."""
    return work.shape if PRODUCTS in rates and isinstance(work.shape, Convolution) else None


def unfolded_seconds(work: Work, rates: Mapping[str, float]) -> float:
    """Seconds of a convolution on all cores, or of its gradients."""
    shape = unfolded(work, rates)
    assert shape is not None
    groups, read = shape.groups, shape.batch * shape.groups * shape.in_channels
    start = rates["dispatch_seconds"] * max(OPS_OF_GROUP * groups, 1.0) if groups > 1.0 else rates["dispatch_seconds"]
    numbers = read * shape.input_positions + shape.batch * groups * shape.out_channels * shape.positions
    backward, side = isinstance(shape, ConvolutionGradient), _side(shape.kernel, shape)
    plain = not (shape.three_d or shape.transposed or shape.dilated or backward) and work.dtype == "float32"
    if plain and shape.variant == "depthwise" and side == 3.0:  # a kernel of its own, by Winograd
        return rates["dispatch_seconds"] + 4.0 * numbers / rates[UNFOLDED]
    if plain and shape.batch >= LEAST_IMAGES and side <= LONGEST_SIDE:
        return start + rates[CORE_CYCLE] * (groups * _tiled_cycles(shape) + LAID_OUT * numbers)
    as_they_are = shape.kernel == 1.0 and shape.positions == shape.input_positions
    windows = 0.0 if as_they_are else 4.0 * read * shape.kernel * shape.positions
    passes = 2.0 if isinstance(shape, ConvolutionGradient) and shape.to_input else 1.0
    padding = max(UNIT / shape.out_channels, 1.0)
    return start + passes * windows / rates[UNFOLDED] + padding * work.flops / rates[PRODUCTS]


def _tiled_cycles(shape: Convolution) -> float:
    """Cycles of NNPACK for one group of channels (``nnp_convolution_output`` in its src/convolution-output.c).

    Of convolutions that skip positions it multiplies each window as it is.
    """
    images, read, written = shape.batch, shape.in_channels, shape.out_channels
    if shape.input_positions >= 2.0 * shape.positions:
        return 2.0 * images * read * written * shape.kernel * shape.positions / MULTIPLIED
    side = _side(shape.kernel, shape)

    def tiles(length: float) -> float:
        """Tiles of so many numbers a side, of an image."""
        across = math.ceil(_side(shape.positions, shape) / (length - side + 1.0))
        return across if shape.one_d else across * across

    length = 8.0 if side <= 8.0 and tiles(8.0) <= 4.0 * tiles(16.0) else 16.0
    winograd = length == 8.0 and side == 3.0 and not shape.one_d
    number = length * length
    transformed = number * (images * tiles(length) * (read + written) + read * written)
    multiplied = (WINOGRAD if winograd else FOURIER) * number * images * tiles(length) * read * written
    return TRANSFORMED * transformed + multiplied / MULTIPLIED


def _side(size: float, shape: Convolution) -> float:
    """Length of a side of a square of so many numbers, or of a row."""
    return size if shape.one_d else math.sqrt(size)
