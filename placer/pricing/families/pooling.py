"""Maximum, average and adaptive pooling, upsampling, and their gradients."""

from __future__ import annotations

from placer.pricing.families.family import Family, Features, aten
from placer.pricing.work import Work
from placer.tracing import OpCall


def _read(call: OpCall) -> Features:
    """FLOPs: 1 per element of the larger side."""
    large = max((*call.inputs, *call.outputs), key=lambda t: t.numel)
    small = call.outputs[0] if not call.op.endswith("backward") else call.inputs[0]
    window = max(large.numel / max(small.numel, 1), 1.0)
    return Features(float(large.numel), (large.numel, small.numel, window), (float(not large.contiguous),))


def _compared(work: Work) -> float:
    """Elements of all windows."""
    _, pooled, window = work.sizes[:3]
    return pooled * window


FAMILY = Family(
    name="pooling",
    ops=aten(
        "max_pool2d_with_indices max_pool2d_with_indices_backward avg_pool2d avg_pool2d_backward _adaptive_avg_pool2d "
        "_adaptive_avg_pool2d_backward max_pool3d_with_indices max_pool3d_with_indices_backward avg_pool3d "
        "avg_pool3d_backward adaptive_max_pool2d adaptive_max_pool2d_backward max_pool1d avg_pool1d "
        "_adaptive_avg_pool3d _adaptive_avg_pool3d_backward upsample_nearest2d upsample_nearest2d_backward "
        "upsample_bilinear2d upsample_bilinear2d_backward upsample_nearest1d upsample_nearest1d_backward "
        "upsample_linear1d"
    ),
    sizes={
        "numel": "elements of the larger side",
        "pooled": "elements of the forward's result",
        "window": "elements that share one result",
    },
    flags={"strided": "the larger side is not contiguous"},
    read=_read,
    amounts={"compared": _compared},
)
