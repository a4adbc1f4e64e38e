"""Functions that are one kernel on one kind of device, and several ops on the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from placer.tracing import layout
from placer.tracing.device_kind import DeviceKind
from placer.tracing.fused_call import FusedCall
from placer.tracing.recorder import Recorder

#: The functions.
KERNELS = frozenset({F.rms_norm, torch.rms_norm})


def kernel_of(
    func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], kind: DeviceKind, *, autocast: bool
) -> Callable[..., Any] | None:
    """The handler of a call that is one kernel on ``kind``; None for other calls, noting the kind where it is one.

    ``autocast``: it is on, so all operands have one dtype on CUDA.
    """
    if func in KERNELS and _is_one_kernel(*args, **kwargs, autocast=autocast):
        kind.differs("cuda")
        return rms_norm if kind.name == "cuda" else None
    return None


def rms_norm(
    recorder: Recorder,
    input: Tensor,  # noqa: A002 - PyTorch's own name
    normalized_shape: Any,
    weight: Tensor | None = None,
    eps: float | None = None,
) -> Tensor:
    """``F.rms_norm`` on CUDA; args: normalized_shape. Backward needs the reciprocal of each row's root mean square."""
    spec = layout.spec_of(input)
    shape = tuple(int(n) for n in normalized_shape)
    rows = layout.dense((*spec.shape[: len(spec.shape) - len(shape)], *(1,) * len(shape)), "float32")
    output = layout.dense(spec.shape, spec.dtype)
    result: Tensor = FusedCall(recorder, "aten::_fused_rms_norm", (shape,), (output,), (rows,))(input, weight)
    return result


def _is_one_kernel(
    input: Tensor,  # noqa: A002 - PyTorch's own name
    normalized_shape: Any,
    weight: Tensor | None = None,
    eps: float | None = None,
    *,
    autocast: bool,
) -> bool:
    """Whether torch's CUDA builds have one kernel for ``F.rms_norm`` with these arguments (torch 2.9 and later).

    ``rms_norm_symint`` takes the ops apart for complex numbers, channels-last tensors and a weight of another dtype.
    """
    return (
        hasattr(torch.ops.aten, "_fused_rms_norm_backward")
        and not input.is_complex()
        and not layout.is_channels_last(layout.spec_of(input))
        and (autocast or weight is None or weight.dtype == input.dtype)
    )
