"""Convolutions in one to three dimensions, transposed ones too, and their gradients."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from placer.pricing.families.family import Family, Features, aten
from placer.pricing.families.vector_registers import REGISTER, padded, ragged
from placer.pricing.operands import has_true_argument
from placer.pricing.work import Work
from placer.tracing import OpCall, TensorSpec

_SIZES = {
    "batch": "images",
    "in_channels": "channels of the image in one group",
    "out_channels": "channels of the result in one group",
    "groups": "groups of channels",
    "kernel": "elements of the kernel's window",
    "positions": "places of the window: those of the result, or of the image where the convolution is transposed",
    "input_positions": "positions of the image",
    "weights": "elements of the weight",
    "result": "elements of the result",
}
_FLAGS = {
    "one_d": "one spatial dimension",
    "three_d": "three spatial dimensions",
    "transposed": "a transposed convolution",
    "strided": "the image is not contiguous",
    "dilated": "the window has gaps",
    "ragged": "the channels of image or result fill no whole number of vector registers",
}


def _read_forward(call: OpCall) -> Features:
    """FLOPs: 2 x batch x in x out x groups x kernel x positions, with the channels of one group."""
    image, weight, out = *call.inputs[:2], call.outputs[0]
    sizes = _sizes(call, image, weight, out)
    n, cin, cout, groups, kernel, spatial = sizes[:6]
    return Features(2.0 * n * cin * cout * groups * kernel * spatial, sizes, _flags(call, image, weight, out))


def _read_backward(call: OpCall) -> Features:
    """FLOPs: the forward's for the weight's gradient, and again for the input's where it is asked for."""
    grad, image, weight = call.inputs[:3]
    sizes = _sizes(call, image, weight, grad)
    n, cin, cout, groups, kernel, spatial = sizes[:6]
    to_input = any(o.shape == image.shape for o in call.outputs)
    flops = (4.0 if to_input else 2.0) * n * cin * cout * groups * kernel * spatial
    return Features(flops, sizes, (*_flags(call, image, weight, grad), float(to_input)))


def _sizes(call: OpCall, image: TensorSpec, weight: TensorSpec, out: TensorSpec) -> tuple[float, ...]:
    kernel = math.prod(weight.shape[2:])
    if has_true_argument(call):  # transposed
        groups = max(out.shape[1] // max(weight.shape[1], 1), 1)
        spatial = math.prod(image.shape[2:])
    else:
        groups = max(image.shape[1] // max(weight.shape[1], 1), 1)
        spatial = math.prod(out.shape[2:])
    cin, cout = image.shape[1] / groups, out.shape[1] / groups
    return image.shape[0], cin, cout, groups, kernel, spatial, math.prod(image.shape[2:]), weight.numel, out.numel


def _flags(call: OpCall, image: TensorSpec, weight: TensorSpec, out: TensorSpec) -> tuple[float, ...]:
    dims = len(weight.shape) - 2
    transposed, strided, dilated = has_true_argument(call), not image.contiguous, _is_dilated(call)
    return (
        float(dims == 1), float(dims == 3), float(transposed), float(strided), float(dilated),
        ragged(image.shape[1], out.shape[1]),
    )  # fmt: skip


def _is_dilated(call: OpCall) -> bool:
    """Dilation is the list right before the flag ``transposed``, after stride and padding.

    Its position from the start varies: a backward has the bias's size first, and other lists may precede it.
    """
    position = next((i for i, argument in enumerate(call.args) if isinstance(argument, bool)), 0)
    dilation = call.args[position - 1] if position else ()
    return isinstance(dilation, tuple) and any(step != 1 for step in dilation)


def _filling_flops(work: Work) -> float:
    """Arithmetic on channels that only pad vector registers (oneDNN's blocked layouts).

    An image with fewer channels than a register holds is read without padding, by kernels of its own (oneDNN's
    ``is_1stconv``). No kernel writes one so: its gradient is padded like any other.
    """
    cin, cout, groups = work.sizes[1:4]
    if groups > 1:
        return 0.0
    to_input = work.family == "convolution_backward" and work.flags[6] > 0.0
    read = 1.0 if cin < REGISTER and not to_input else padded(cin)
    return work.flops * (read * padded(cout) - 1.0)


def _unfolded_bytes(work: Work) -> float:
    """Memory of the window-sized patches around every position: kernels that unfold the image write and read them."""
    n, cin, _, groups, kernel, positions = work.sizes[:6]
    return 4.0 * n * cin * groups * kernel * positions


def _activations(work: Work) -> float:
    """Elements of image and result. They are laid out anew and written to fresh memory, and cost more than weights."""
    n, cin, _, groups, _, _, input_positions, _, result = work.sizes[:9]
    return n * cin * groups * input_positions + result


def _padding_flops(work: Work, _: int) -> float:
    """``filling_flops`` as earlier versions counted it: an image of few channels is padded wherever it is read."""
    cin, cout, groups = work.sizes[1:4]
    return 0.0 if groups > 1 else work.flops * (padded(cin) * padded(cout) - 1.0)


def _variant(work: Work) -> str:
    """``depthwise`` where every group has one input channel: those run in kernels of their own.

    For the gradients of dilated ones there is no fast kernel: they are another variant.
    """
    _, cin, _, groups, kernel = work.sizes[:5]
    if groups == 1 or cin > 1:
        return ""
    dilated = work.flags[4] > 0.0 and kernel > 1
    return "dilated_depthwise" if dilated else "depthwise"


_CPU_AMOUNTS: Mapping[str, Callable[[Work], float]] = {
    "filling_flops": _filling_flops,
    "unfolded_bytes": _unfolded_bytes,
    "activations": _activations,
}
_EARLIER: Mapping[str, Callable[[Work, int], float]] = {"padding_flops": _padding_flops}

FORWARD = Family(
    name="convolution",
    ops=aten("convolution _convolution mkldnn_convolution cudnn_convolution conv2d conv1d conv3d"),
    sizes=_SIZES,
    flags=_FLAGS,
    read=_read_forward,
    cpu_amounts=_CPU_AMOUNTS,
    earlier=_EARLIER,
    variant=_variant,
)
BACKWARD = Family(
    name="convolution_backward",
    ops=aten("convolution_backward"),
    sizes=_SIZES,
    flags={**_FLAGS, "to_input": "the gradient of the image is asked for, besides that of the weight"},
    read=_read_backward,
    cpu_amounts=_CPU_AMOUNTS,
    earlier=_EARLIER,
    variant=_variant,
)
