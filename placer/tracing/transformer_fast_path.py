"""The inference fast path of nn.TransformerEncoderLayer and nn.MultiheadAttention, one fused op each.

Their forwards refuse the fast path on meta tensors and under function modes. The classes here take it, under
the other conditions that the forwards check.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from placer.tracing import layout
from placer.tracing.fused_ops import inference_call
from placer.tracing.layout import dtype_name
from placer.tracing.recorder import Recorder

#: Python functions a layer enters to check that it may take the fast path (torch 2.13; most check a tensor's type).
_CHECKS = 100


class _EncoderLayer(nn.TransformerEncoderLayer):
    placer_recorder: Recorder

    def forward(
        self,
        src: Tensor,
        src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        def slow() -> Tensor:
            return super(_EncoderLayer, self).forward(src, src_mask, src_key_padding_mask, is_causal)

        attn = self.self_attn
        weights = (
            attn.in_proj_weight, attn.in_proj_bias, attn.out_proj.weight, attn.out_proj.bias,
            self.norm1.weight, self.norm1.bias, self.norm2.weight, self.norm2.bias,
            self.linear1.weight, self.linear1.bias, self.linear2.weight, self.linear2.bias,
        )  # fmt: skip
        if (
            not self.placer_recorder.paused
            and torch.backends.mha.get_fastpath_enabled()
            and not torch.is_autocast_enabled()
            and src.dim() == 3
            and not self.training
            and attn.batch_first
            and attn.in_proj_bias is not None
            and attn._qkv_same_embed_dim
            and self.activation_relu_or_gelu
            and self.norm1.eps == self.norm2.eps
            and attn.num_heads % 2 == 0
            and not _needs_grad((src, *weights))
        ):
            args = (attn.embed_dim, attn.num_heads, self.activation_relu_or_gelu == 2, self.norm_first, self.norm1.eps)
            output = layout.dense(src.shape, dtype_name(src.dtype))
            tensors = (src, *weights, src_mask, src_key_padding_mask)
            op = "aten::_transformer_encoder_layer_fwd"
            self.placer_recorder.skipped_functions(_CHECKS)
            return inference_call(self.placer_recorder, op, args, (output,), tensors, slow)[0]
        return slow()


class _Attention(nn.MultiheadAttention):
    placer_recorder: Recorder

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        def slow() -> tuple[Tensor, Tensor | None]:
            return super(_Attention, self).forward(
                query, key, value, key_padding_mask, need_weights, attn_mask, average_attn_weights, is_causal
            )

        weights = (self.in_proj_weight, self.in_proj_bias, self.out_proj.weight, self.out_proj.bias)
        masks = [m for m in (key_padding_mask, attn_mask) if m is not None]
        if (
            not self.placer_recorder.paused
            and torch.backends.mha.get_fastpath_enabled()
            and not torch.is_autocast_enabled()
            and query is key is value
            and query.dim() == 3
            and not self.training
            and self.batch_first
            and self._qkv_same_embed_dim
            and self.in_proj_bias is not None
            and self.bias_k is None
            and self.bias_v is None
            and not self.add_zero_attn
            and self.num_heads % 2 == 0
            and query.dtype == self.in_proj_weight.dtype
            and not any(m.is_floating_point() for m in masks)
            and not _needs_grad((query, *weights))
        ):
            batch, length, _ = query.shape
            dtype = dtype_name(query.dtype)
            outputs = [layout.dense(query.shape, dtype)]
            if need_weights:
                heads = () if average_attn_weights else (self.num_heads,)
                outputs.append(layout.dense((batch, *heads, length, length), dtype))
            args = (self.embed_dim, self.num_heads, need_weights, average_attn_weights)
            tensors = (query, *weights, *masks)
            op = "aten::_native_multi_head_attention"
            results = inference_call(self.placer_recorder, op, args, outputs, tensors, slow)
            return results[0], results[1] if need_weights else None
        return slow()


def _needs_grad(tensors: tuple[Any, ...]) -> bool:
    return torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)


def install(model: nn.Module, recorder: Recorder, autocast: bool) -> None:
    """Give the layers that would take a fast path the class that records it.

    Hooks of the user anywhere in an encoder layer, and autocast, switch the fast path off in real runs.
    """
    if autocast:
        return
    for module in model.modules():
        if type(module) is nn.TransformerEncoderLayer and not any(m._forward_hooks or m._forward_pre_hooks
                                                                  for m in module.modules()):  # fmt: skip
            module.__class__ = _EncoderLayer
        elif type(module) is nn.MultiheadAttention:
            module.__class__ = _Attention
        else:
            continue
        module.__dict__["placer_recorder"] = recorder
