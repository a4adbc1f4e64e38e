"""Shapes of ops that multiply matrices, or solve and transform with them: nearly all of their time is arithmetic."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from placer.pricing.shapes.shape import (
    ITEM,
    REGISTER,
    Cut,
    Shape,
    Work,
    has_true_argument,
    padded,
    pieces_of_products,
    ragged,
)

if TYPE_CHECKING:
    from typing_extensions import Self

    from placer.pricing.ops import Op
    from placer.tracing import OpCall, TensorSpec

#: Regions of a product: on 16 threads squares of 128 and 256 take 10 and 21 us more than their share of a core's time,
#: 32 rows times 256 x 256 23 us (calibration/records/nvidia-h200-16-core-second/thread_ops.jsonl.xz).
PRODUCT_REGIONS = 3.0
#: Numbers of an images' gradient, read and written, below which oneDNN leaves it to a few threads, how many, and
#: positions from which on the gradient of weights is made by all: counted with 8 and 16 threads, of convolutions of 1
#: to 64 channels.
SMALL_GRADIENT, FEW_THREADS, MANY_POSITIONS = 1e4, 4.0, 400.0


@dataclass(frozen=True, slots=True)
class Product(Shape):
    """Products of matrices, m x k times k x n."""

    #: Products in the call.
    batch: float
    m: float
    n: float
    k: float
    #: Elements of the first operand, the second, and the result.
    left: float
    right: float
    product: float
    #: The smallest of m, n and k: every kernel is less efficient on a thin product.
    narrowest: float
    a_transposed: bool
    b_transposed: bool
    #: m is 1, n is 1, which have kernels of their own.
    row: bool
    column: bool
    #: Rows of the result end within a vector register: a tenth slower, however few numbers are missing.
    ragged: bool

    @classmethod
    def read(cls, call: OpCall, op: Op) -> Self:
        # addmm, baddbmm and addmv carry the bias first.
        a, b = call.inputs[-2:]
        batch = a.shape[0] if len(a.shape) == 3 else 1
        m = a.shape[-2] if len(a.shape) > 1 else 1
        k = a.shape[-1] if a.shape else 1
        n = b.shape[-1] if len(b.shape) > 1 else 1
        return cls(
            batch,
            m,
            n,
            k,
            batch * m * k,
            batch * k * n,
            batch * m * n,
            min(m, n, k),
            _is_transposed(a),
            _is_transposed(b),
            m == 1,
            n == 1,
            ragged(n),
        )

    @property
    def flops(self) -> float:
        return 2.0 * self.batch * self.m * self.n * self.k

    def cut(self, work: Work) -> Cut:
        """MKL packs the operands, multiplies, and meets in between."""
        return Cut(pieces_of_products(work.flops), PRODUCT_REGIONS)

    def share(self, cores: float) -> Product:
        """Matrices of the batch first, then tiles as square as can be."""
        several = min(self.batch, cores)
        batch, area = self.batch / several, self.m * self.n / (cores / several)
        m = min(self.m, max(math.sqrt(area), 1.0))
        n = min(self.n, max(area / m, 1.0))
        m = min(self.m, area / n) if n > 0 else m
        return replace(
            self,
            batch=batch,
            m=m,
            n=n,
            left=batch * m * self.k,
            right=batch * self.k * n,
            product=batch * m * n,
            narrowest=min(m, n, self.k),
        )

    def share_bytes(self, moved: float, cores: float) -> float:
        return ITEM * (self.left + self.right + self.product)


def _is_transposed(spec: TensorSpec) -> bool:
    return len(spec.shape) > 1 and spec.stride[-1] != 1 and spec.shape[-1] != 1


@dataclass(frozen=True, slots=True)
class Convolution(Shape):
    """A convolution in one to three dimensions."""

    #: Images.
    batch: float
    #: Channels of the image and of the result, of one group.
    in_channels: float
    out_channels: float
    #: Groups of channels.
    groups: float
    #: Elements of the kernel's window.
    kernel: float
    #: Places of the window: those of the result, or of the image where the convolution is transposed.
    positions: float
    #: Positions of the image.
    input_positions: float
    #: Elements of the weight and of the result.
    weights: float
    result: float
    one_d: bool
    three_d: bool
    transposed: bool
    #: The image is not contiguous.
    strided: bool
    #: The window has gaps.
    dilated: bool
    #: The channels of image or result fill no whole number of vector registers.
    ragged: bool

    @classmethod
    def read(cls, call: OpCall, op: Op) -> Self:
        image, weight = call.inputs[:2]
        return cls(**_convolved(call, image, weight, call.outputs[0]))

    @property
    def flops(self) -> float:
        return 2.0 * self.multiplied

    @property
    def multiplied(self) -> float:
        """Multiply-adds of one pass."""
        channels = self.in_channels * self.out_channels * self.groups
        return self.batch * channels * self.kernel * self.positions

    @property
    def variant(self) -> str:
        """``depthwise`` are convolutions every group of which has one input channel.

        For the gradients of dilated ones there is no fast kernel: they are another variant.
        """
        if self.groups == 1 or self.in_channels > 1:
            return ""
        return "dilated_depthwise" if self.dilated and self.kernel > 1 else "depthwise"

    def cut(self, work: Work) -> Cut:
        """oneDNN lays image and weight out anew, multiplies, and lays out the result."""
        return Cut(pieces_of_products(work.flops), 3.0, teams=self._teams())

    def _teams(self) -> tuple[float, ...]:
        """The pieces of a convolution are rows of an image, for a register of channels each."""
        if self.groups > 1.0 or self.batch < 2.0:
            return ()
        return (self.batch * math.ceil(self.out_channels / REGISTER) * self._rows(self.positions),)

    def _rows(self, positions: float) -> float:
        """Rows of an image that has so many positions."""
        return 1.0 if self.one_d else math.sqrt(positions)

    def share(self, cores: float) -> Convolution:
        """Images of the batch first, then channels and positions of the result like a product's tiles.

        Every core reads the weights of its channels, and the window of its positions.
        """
        several = min(self.batch, cores)
        cores /= several
        channels = max(self.out_channels * self.groups, 1.0)
        wide = math.sqrt(cores * channels / max(self.positions, 1.0))
        wide = min(max(wide, 1.0), cores, max(channels / REGISTER, 1.0))
        high = cores / wide
        by_group = self.groups >= wide
        return replace(
            self,
            batch=self.batch / several,
            groups=self.groups / wide if by_group else self.groups,
            out_channels=self.out_channels if by_group else self.out_channels / wide,
            positions=self.positions / high,
            input_positions=self.input_positions / high,
            weights=self.weights / wide,
            result=self.result / several / cores,
        )

    def share_bytes(self, moved: float, cores: float) -> float:
        image = self.batch * self.in_channels * self.groups * self.input_positions
        return ITEM * (image + self.weights + self.result)


@dataclass(frozen=True, slots=True)
class ConvolutionGradient(Convolution):
    """The gradients of a convolution: of its weight, and of the image where that is asked for."""

    #: The gradient of the image is asked for, besides that of the weight.
    to_input: bool

    @classmethod
    def read(cls, call: OpCall, op: Op) -> Self:
        grad, image, weight = call.inputs[:3]
        to_input = any(o.shape == image.shape for o in call.outputs)
        return cls(**_convolved(call, image, weight, grad), to_input=to_input)

    @property
    def flops(self) -> float:
        return (4.0 if self.to_input else 2.0) * self.multiplied

    def cut(self, work: Work) -> Cut:
        return Cut(pieces_of_products(work.flops), 5.0, teams=self._teams())

    def _teams(self) -> tuple[float, ...]:
        """The gradient of the images, where it is asked for, and that of the weights.

        That of small images is left to four threads. That of weights is cut by image and by register of channels that
        are read and written, or of groups.
        """
        read, channels = self.in_channels, self.out_channels
        if self.groups > 1.0:
            return (self.batch * math.ceil(self.groups / REGISTER),)
        if self.batch < 2.0:
            return ()
        teams = []
        blocks = math.ceil(read / REGISTER)
        if self.to_input:
            wide = read * padded(read) + channels * padded(channels)
            small = self.batch * self.input_positions * wide < SMALL_GRADIENT
            teams.append(FEW_THREADS if small else self.batch * blocks * self._rows(self.input_positions))
        if self.positions < MANY_POSITIONS:
            teams.append(self.batch * blocks * math.ceil(channels / REGISTER))
        return tuple(teams)

    def share_bytes(self, moved: float, cores: float) -> float:
        image = self.batch * self.in_channels * self.groups * self.input_positions
        return ITEM * (2.0 * image + 2.0 * self.weights + self.result)


def _convolved(call: OpCall, image: TensorSpec, weight: TensorSpec, out: TensorSpec) -> dict[str, Any]:
    """The fields of ``Convolution``, of which ``out`` is the result or its gradient."""
    dims, transposed = len(weight.shape) - 2, has_true_argument(call)
    walked = image if transposed else out
    groups = max((out if transposed else image).shape[1] // max(weight.shape[1], 1), 1)
    return {
        "batch": image.shape[0],
        "in_channels": image.shape[1] / groups,
        "out_channels": out.shape[1] / groups,
        "groups": groups,
        "kernel": math.prod(weight.shape[2:]),
        "positions": math.prod(walked.shape[2:]),
        "input_positions": math.prod(image.shape[2:]),
        "weights": weight.numel,
        "result": out.numel,
        "one_d": dims == 1,
        "three_d": dims == 3,
        "transposed": transposed,
        "strided": not image.contiguous,
        "dilated": _is_dilated(call),
        "ragged": ragged(image.shape[1], out.shape[1]),
    }


def _is_dilated(call: OpCall) -> bool:
    """Dilation is the list right before the flag ``transposed``, after stride and padding.

    Its position from the start varies: a backward has the bias's size first, and other lists may precede it.
    """
    position = next((i for i, argument in enumerate(call.args) if isinstance(argument, bool)), 0)
    dilation = call.args[position - 1] if position else ()
    return isinstance(dilation, tuple) and any(step != 1 for step in dilation)
