"""Fused ops: attention, recurrent layers, dropout and others that real devices run as one kernel, or a few.

On meta tensors they would decompose, an LSTM into thousands of calls. Each handler here is called with the function's
own arguments and makes one ``FusedCall``: one recorded call, and one ``_backward`` call when autograd comes back. Some
functions are one kernel on one kind of device only.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from placer.errors import TraceError
from placer.tracing.recorder import Recorder
from placer.tracing.trace_data import (
    TensorSpec,
    dense,
    dtype_name,
    elementwise_layout,
    is_channels_last,
    like,
    make_spec,
    spec_of,
)


class DifferentiatedTwice(TraceError):
    """The step differentiates through a fused op twice, as PyTorch can through the ops that it stands for."""


@dataclass(frozen=True)
class DeviceKind:
    """``name`` is torch's (``cpu``, ``cuda``). ``others`` gets the kinds that turn out to run other ops.

    A region of ``torch.autocast`` takes effect on one kind of device, and some kernels exist on one kind: for each of
    ``others`` the step is traced once more. What a reader should know of the reason is its value, else "".
    """

    name: str = "cpu"
    others: dict[str, str] = field(default_factory=dict)

    def differs(self, kind: str, note: str = "") -> None:
        """The step runs other ops on ``kind`` than on the CPU."""
        self.others.setdefault("cpu" if kind == self.name else kind, note)


class Surroundings(NamedTuple):
    """Where a function is called: what records it, for which kind of device, and whether autocast is on."""

    recorder: Recorder
    kind: DeviceKind
    autocast: bool


@dataclass(frozen=True, slots=True)
class FusedCall:
    """One fused op: its outputs, and the workspace it keeps for backward besides inputs and outputs."""

    recorder: Recorder
    op: str
    args: tuple[Hashable, ...]
    outputs: tuple[TensorSpec, ...]
    workspace: tuple[TensorSpec, ...] = ()
    #: Backward reads the forward inputs again (dropout needs only its mask).
    keeps_inputs: bool = True

    def __call__(self, *tensors: Tensor | None) -> Any:
        """One tensor for one output, else a tuple; differentiable."""
        outputs = _Fused.apply(self, *tensors)  # type: ignore[no-untyped-call]
        return outputs[0] if len(self.outputs) == 1 else outputs


class _Fused(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, call: FusedCall, *tensors: Tensor | None) -> tuple[Tensor, ...]:
        inputs = tuple(spec_of(t) for t in tensors if t is not None)
        call.recorder.log.record(call.op, inputs, call.outputs, call.args)
        outputs, held = call.recorder.evaluate(call.outputs, tensors, ctx.needs_input_grad[1:])
        call.recorder.log.connect(tensors, outputs)
        ctx.set_materialize_grads(False)
        ctx.call, ctx.inputs, ctx.computed = call, inputs, held is not None
        ctx.shapes = tuple(None if t is None else spec_of(t) for t in tensors)
        if any(ctx.needs_input_grad):
            saved = (*tensors, *outputs) if call.keeps_inputs else ()
            workspace = (call.recorder.fresh(spec) for spec in call.workspace)
            # ``held`` comes first, so that it is freed first: a real run may hold the memory of the others through it.
            ctx.save_for_backward(*((held,) if held is not None else ()), *saved, *workspace)
        return outputs

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        call: FusedCall = ctx.call
        if torch.is_grad_enabled():
            raise DifferentiatedTwice(f"the step differentiates {call.op} twice")
        held, *saved = ctx.saved_tensors if ctx.computed else (None, *ctx.saved_tensors)
        # ``saved`` lives until the gradients exist, as in the real kernel.
        wanted = [
            _gradient_spec(call, spec) if spec is not None and needed else None
            for spec, needed in zip(ctx.shapes, ctx.needs_input_grad[1:], strict=True)
        ]
        gradient_specs = tuple(spec_of(g) for g in grads if g is not None)
        reads = ctx.inputs if call.keeps_inputs else tuple(spec_of(t) for t in saved)
        made = tuple(spec for spec in wanted if spec is not None)
        call.recorder.log.record(call.op + "_backward", (*reads, *gradient_specs), made, call.args)
        gradients = call.recorder.gradients(wanted, grads, held)
        call.recorder.log.connect((*saved, *grads), gradients)
        return None, *gradients


def _gradient_spec(call: FusedCall, spec: TensorSpec) -> TensorSpec:
    if call.op == "aten::scaled_dot_product_attention" and len(spec.shape) == 4 and spec.dtype == call.outputs[0].dtype:
        # Flash kernels write gradients as (batch, length, heads, width), whatever the operands'
        _, heads, length, width = spec.shape
        return make_spec(spec.shape, (length * heads * width, width, heads * width, 1), spec.dtype)
    # The gradient of an expanded tensor is stored in full.
    return like(spec) if 0 not in spec.stride else dense(spec.shape, spec.dtype)


def inference_call(
    recorder: Recorder,
    op: str,
    args: tuple[Hashable, ...],
    outputs: Sequence[TensorSpec],
    tensors: Sequence[Tensor | None],
    compute: Callable[[], Any] | None = None,
) -> tuple[Tensor, ...]:
    """A fused op that has no gradient. ``compute`` gives its outputs; with None, the caught function does."""
    recorder.log.record(op, tuple(spec_of(t) for t in tensors if t is not None), tuple(outputs), args)
    results = recorder.results(outputs, compute)
    recorder.log.connect(tensors, results)
    return results


# --- attention ------------------------------------------------------------------------------------------------------


def attention(
    around: Surroundings,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """``scaled_dot_product_attention``; args: is_causal, whether there is a mask, dropout_p, enable_gqa."""
    shape = (*query.shape[:-1], value.shape[-1])
    dtype = dtype_name(query.dtype)
    # Flash kernels lay the result out like the query, so that heads split by a view merge by a view.
    source = spec_of(query)
    output = like(make_spec(tuple(shape), source.stride, dtype)) if len(shape) == 4 else dense(shape, dtype)
    statistics = dense(shape[:-1], "float32")
    args = (bool(is_causal), attn_mask is not None, float(dropout_p), bool(enable_gqa))
    call = FusedCall(around.recorder, "aten::scaled_dot_product_attention", args, (output,), (statistics,))
    return call(query, key, value, attn_mask)


# --- recurrent layers -----------------------------------------------------------------------------------------------

_GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}


def recurrent(name: str) -> Callable[..., Any]:
    """The handler of ``torch.lstm`` (or GRU, plain RNN), for padded and packed sequences.

    Call args: has_biases, num_layers, dropout, train, bidirectional, batch_first, time steps.
    """

    def handler(around: Surroundings, data: Tensor, second: Any, *rest: Any, **kwargs: Any) -> Any:
        if kwargs:  # the schema's names, in order
            rest = (*rest, *kwargs.values())
        packed = not isinstance(rest[0], (list, tuple)) or (
            name == "lstm" and isinstance(second, Tensor) and isinstance(rest[0], (list, tuple))
        )
        if packed:
            batch_sizes, hidden, weights, *settings = second, *rest
            batch_first, steps = False, int(batch_sizes.numel())
        else:
            hidden, (weights, *settings) = second, rest
            batch_first = bool(settings[-1])
            steps = data.shape[1 if batch_first and data.dim() == 3 else 0]
        states: tuple[Tensor, ...] = (hidden,) if isinstance(hidden, Tensor) else tuple(hidden)
        has_biases, layers, dropout, train, bidirectional = settings[:5]
        directions = 2 if bidirectional else 1
        width = states[0].shape[-1]
        dtype = dtype_name(data.dtype)
        output = dense((*data.shape[:-1], directions * width), dtype)
        flags = (bool(train), bool(bidirectional), batch_first)
        args = (bool(has_biases), int(layers), float(dropout), *flags, int(steps))
        rows = data.numel() // max(data.shape[-1], 1)
        cell_width = states[-1].shape[-1]
        gates = dense((rows * layers * directions * (_GATES[name] + 1) * cell_width,), dtype)
        outputs = (output, *(dense(s.shape, dtype) for s in states))
        call = FusedCall(around.recorder, f"aten::{name}", args, outputs, (gates,))
        return call(data, *states, *weights, *((batch_sizes,) if packed else ()))

    return handler


def cell(name: str) -> Callable[..., Any]:
    """The handler of ``torch.lstm_cell`` and the other cells."""

    def handler(around: Surroundings, data: Tensor, hidden: Any, *weights: Any, **kwargs: Any) -> Any:
        states: tuple[Tensor, ...] = (hidden,) if isinstance(hidden, Tensor) else tuple(hidden)
        outputs = tuple(dense(s.shape, dtype_name(data.dtype)) for s in states)
        gates = dense((*states[0].shape[:-1], _GATES[name] * states[0].shape[-1]), outputs[0].dtype)
        call = FusedCall(around.recorder, f"aten::{name}_cell", (), outputs, (gates,))
        return call(data, *states, *weights, *kwargs.values())

    return handler


# --- dropout --------------------------------------------------------------------------------------------------------


def dropout(
    around: Surroundings,
    input: Tensor,  # noqa: A002 - PyTorch's own name
    p: float = 0.5,
    training: bool = True,
    inplace: bool = False,
) -> Any:
    """``F.dropout``; args: p. A boolean mask is what backward needs. In place it is traced as it is."""
    if not training or not 0.0 < p <= 1.0 or inplace or input.numel() == 0:
        return NotImplemented
    spec = spec_of(input)
    mask = make_spec(*elementwise_layout([spec]), "bool")
    call = FusedCall(around.recorder, "aten::dropout", (float(p),), (like(spec),), (mask,), keeps_inputs=False)
    return call(input)


def mish(around: Surroundings, input: Tensor, inplace: bool = False) -> Any:  # noqa: A002
    """``F.mish``, whose gradient is one kernel on real devices and eight ops on meta tensors."""
    spec = spec_of(input)
    return FusedCall(around.recorder, "aten::mish", (), (like(spec),))(input)


def max_pool1d(
    around: Surroundings,
    input: Tensor,  # noqa: A002 - PyTorch's own name
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """``F.max_pool1d`` without a gradient: one kernel of its own. With a gradient it is a two-dimensional pooling."""
    if return_indices or (torch.is_grad_enabled() and input.requires_grad):
        return NotImplemented
    kernel, pad, gap = (int(v[0]) if isinstance(v, (tuple, list)) else int(v) for v in (kernel_size, padding, dilation))
    stride_number = stride[0] if isinstance(stride, (tuple, list)) and stride else stride
    step = int(stride_number) if stride_number else kernel
    span = input.shape[-1] + 2 * pad - gap * (kernel - 1) - 1
    length = (-(-span // step) if ceil_mode else span // step) + 1
    spec = dense((*input.shape[:-1], length), spec_of(input).dtype)
    args = (kernel, step, pad, gap, ceil_mode)
    return inference_call(around.recorder, "aten::max_pool1d", args, (spec,), (input,))[0]


def rms_norm(
    around: Surroundings,
    input: Tensor,  # noqa: A002 - PyTorch's own name
    normalized_shape: Any,
    weight: Tensor | None = None,
    eps: float | None = None,
) -> Any:
    """``F.rms_norm`` on CUDA; args: normalized_shape. Backward needs the reciprocal of each row's root mean square.

    ``rms_norm_symint`` takes the ops apart for complex numbers, channels-last tensors and a weight of another dtype;
    under autocast all have one.
    """
    spec = spec_of(input)
    one_dtype = around.autocast or weight is None or weight.dtype == input.dtype
    if input.is_complex() or is_channels_last(spec) or not one_dtype:
        return NotImplemented
    around.kind.differs("cuda")
    if around.kind.name != "cuda":
        return NotImplemented
    shape = tuple(int(n) for n in normalized_shape)
    rows = dense((*spec.shape[: len(spec.shape) - len(shape)], *(1,) * len(shape)), "float32")
    output = dense(spec.shape, spec.dtype)
    return FusedCall(around.recorder, "aten::_fused_rms_norm", (shape,), (output,), (rows,))(input, weight)


# --- which functions --------------------------------------------------------------------------------------------------

#: The functions that may be one call, each with what records a call of it, or returns NotImplemented for one that is
#: several ops. It is called with the surroundings, and with the function's own arguments.
FUSED: dict[Any, Callable[..., Any]] = {
    F.scaled_dot_product_attention: attention,
    F.dropout: dropout,
    F.mish: mish,
    **dict.fromkeys((F.max_pool1d, torch.max_pool1d), max_pool1d),
    **dict.fromkeys((F.rms_norm, torch.rms_norm), rms_norm),
    **{getattr(torch._VF, name): recurrent(name) for name in _GATES},
    **{getattr(torch._VF, f"{name}_cell"): cell(name) for name in _GATES},
}


# --- the fast path of transformers ------------------------------------------------------------------------------------

#: Python functions a layer enters to check that it may take the fast path (torch 2.13; most check a tensor's type).
_CHECKS = 100


def _takes_fast_path(
    recorder: Recorder, attention: Any, operands: Sequence[Tensor], weights: Sequence[Tensor | None]
) -> bool:
    """Whether attention, or the encoder layer around it, meets what PyTorch asks of both.

    Attributes of a module are found by Python that counts: they are looked at as late as PyTorch does.
    """
    query = operands[0]
    learns = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in (query, *weights))
    return (
        not recorder.paused
        and torch.backends.mha.get_fastpath_enabled()
        and not torch.is_autocast_enabled()
        and all(t is query for t in operands)
        and query.dim() == 3
        and not attention.training
        and attention.batch_first
        and attention.in_proj_bias is not None
        and attention._qkv_same_embed_dim
        and attention.num_heads % 2 == 0
        and not learns
    )


class _EncoderLayer(nn.TransformerEncoderLayer):
    placer_recorder: Recorder

    def forward(
        self,
        src: Tensor,
        src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        attn, recorder = self.self_attn, self.placer_recorder
        slow = functools.partial(super().forward, src, src_mask, src_key_padding_mask, is_causal)
        weights = (
            attn.in_proj_weight, attn.in_proj_bias, attn.out_proj.weight, attn.out_proj.bias,
            self.norm1.weight, self.norm1.bias, self.norm2.weight, self.norm2.bias,
            self.linear1.weight, self.linear1.bias, self.linear2.weight, self.linear2.bias,
        )  # fmt: skip
        if self.training or not _takes_fast_path(recorder, attn, (src,), weights):
            return slow()
        if not self.activation_relu_or_gelu or self.norm1.eps != self.norm2.eps:
            return slow()
        args = (attn.embed_dim, attn.num_heads, self.activation_relu_or_gelu == 2, self.norm_first, self.norm1.eps)
        output = dense(src.shape, dtype_name(src.dtype))
        tensors = (src, *weights, src_mask, src_key_padding_mask)
        if not recorder.real:
            recorder.python_calls.count += _CHECKS
        return inference_call(recorder, "aten::_transformer_encoder_layer_fwd", args, (output,), tensors, slow)[0]


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
        operands = (query, key, value)
        options: tuple[Any, ...] = (key_padding_mask, need_weights, attn_mask, average_attn_weights, is_causal)
        slow = functools.partial(super().forward, *operands, *options)
        weights = (self.in_proj_weight, self.in_proj_bias, self.out_proj.weight, self.out_proj.bias)
        masks = [m for m in (key_padding_mask, attn_mask) if m is not None]
        if not _takes_fast_path(self.placer_recorder, self, operands, weights):
            return slow()
        if self.bias_k is not None or self.bias_v is not None or self.add_zero_attn:
            return slow()
        if query.dtype != self.in_proj_weight.dtype or any(m.is_floating_point() for m in masks):
            return slow()
        batch, length, _ = query.shape
        dtype = dtype_name(query.dtype)
        outputs = [dense(query.shape, dtype)]
        if need_weights:
            heads = () if average_attn_weights else (self.num_heads,)
            outputs.append(dense((batch, *heads, length, length), dtype))
        args = (self.embed_dim, self.num_heads, need_weights, average_attn_weights)
        op, tensors = "aten::_native_multi_head_attention", (query, *weights, *masks)
        results = inference_call(self.placer_recorder, op, args, outputs, tensors, slow)
        return results[0], results[1] if need_weights else None


def record_fast_paths(model: nn.Module, recorder: Recorder, autocast: bool) -> None:
    """Give the layers that would take a fast path the class that records it.

    Hooks of the user anywhere in an encoder layer, and autocast, switch the fast path off in real runs.
    """
    if autocast:
        return
    for module in model.modules():
        if type(module) is nn.TransformerEncoderLayer and not any(
            m._forward_hooks or m._forward_pre_hooks for m in module.modules()
        ):
            module.__class__ = _EncoderLayer
        elif type(module) is nn.MultiheadAttention:
            module.__class__ = _Attention
        else:
            continue
        module.__dict__["placer_recorder"] = recorder
