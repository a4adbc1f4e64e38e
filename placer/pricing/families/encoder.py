"""The fused layer of ``nn.TransformerEncoder`` and ``nn.MultiheadAttention``, which only inference uses."""

from __future__ import annotations

from placer.pricing.families.family import Family, Features, aten
from placer.pricing.work import Work
from placer.tracing import OpCall


def _read(call: OpCall) -> Features:
    """FLOPs: 2 x tokens x weights for the layer's products, 4 x tokens x length x width for its attention."""
    source = call.inputs[0]
    tokens, width = max(source.numel // source.shape[-1], 1), source.shape[-1]
    length = source.shape[-2] if len(source.shape) > 2 else tokens
    # A mask is a matrix too, but neither of its sides is the width.
    weights = sum(t.numel for t in call.inputs[1:] if len(t.shape) == 2 and width in t.shape)
    heads = call.args[1] if len(call.args) > 1 and type(call.args[1]) is int else 1
    flops = 2.0 * tokens * weights + 4.0 * tokens * length * width
    return Features(flops, (tokens, length, width, weights, heads))


def _scores(work: Work) -> float:
    tokens, length, _, _, heads = work.sizes[:5]
    return tokens * length * heads


def _activations(work: Work) -> float:
    tokens, _, width = work.sizes[:3]
    return tokens * width


FAMILY = Family(
    name="encoder",
    ops=aten("_transformer_encoder_layer_fwd _native_multi_head_attention"),
    sizes={
        "tokens": "tokens of all sequences",
        "length": "tokens of a sequence",
        "width": "elements of a token",
        "weights": "elements of all weight matrices",
        "heads": "heads of the attention",
    },
    read=_read,
    amounts={"scores": _scores, "activations": _activations},
)
