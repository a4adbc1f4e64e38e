"""Batch, layer, group and RMS normalization, and their gradients."""

from __future__ import annotations

from placer.pricing.families.family import Family, Features, aten
from placer.pricing.families.sharing import CHUNKS, Sharing
from placer.pricing.operands import has_true_argument
from placer.pricing.work import Work
from placer.tracing import OpCall


def _read(call: OpCall) -> Features:
    """FLOPs: 8 per element."""
    source = max(call.inputs, key=lambda t: t.numel)
    channels = max((t.numel for t in call.inputs if len(t.shape) == 1), default=1)
    flags = float(not source.contiguous), float(has_true_argument(call))
    return Features(8.0 * source.numel, (source.numel, channels), flags)


def _pieces(work: Work) -> float:
    """Pieces that cores share: channels where each has statistics of the whole batch, else rows."""
    numel, channels = work.sizes[:2]
    return max(channels if "batch_norm" in work.op else numel / max(channels, 1.0), 1.0)


FAMILY = Family(
    name="normalization",
    ops=aten(
        "native_batch_norm native_batch_norm_backward native_layer_norm native_layer_norm_backward native_group_norm "
        "native_group_norm_backward cudnn_batch_norm cudnn_batch_norm_backward _native_batch_norm_legit "
        "_native_batch_norm_legit_no_training _fused_rms_norm _fused_rms_norm_backward batch_norm_backward "
        "_batch_norm_with_update"
    ),
    sizes={"numel": "elements", "channels": "elements of the weight: channels, or the width of a row"},
    flags={"strided": "the operand is not contiguous", "training": "statistics are taken of the batch"},
    read=_read,
    sharing=Sharing(_pieces),
    earlier=CHUNKS,
)
