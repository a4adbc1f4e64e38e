"""Ops kept whole: attention, recurrent layers, dropout.

Real devices run each as one kernel (or a few); on meta tensors they would decompose, a fused LSTM into thousands of
calls. Each is recorded as one call, and as one ``_backward`` call when autograd comes back through it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from placer.tracing import layout
from placer.tracing.recorder import Recorder
from placer.tracing.schema import dtype_name
from placer.tracing.trace_data import TensorSpec


@dataclass(frozen=True, slots=True)
class WholeCall:
    """What one whole op makes: its outputs, and what it keeps for backward besides inputs and outputs."""

    recorder: Recorder
    op: str
    args: tuple[Hashable, ...]
    outputs: tuple[TensorSpec, ...]
    workspace: tuple[TensorSpec, ...] = ()
    #: Backward reads the forward inputs again (dropout needs only its mask).
    keeps_inputs: bool = True

    def __call__(self, *tensors: Tensor | None) -> Any:
        """One tensor for one output, else a tuple; differentiable."""
        outputs = _Whole.apply(self, *tensors)  # type: ignore[no-untyped-call]
        return outputs[0] if len(self.outputs) == 1 else outputs


class _Whole(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, call: WholeCall, *tensors: Tensor | None) -> tuple[Tensor, ...]:
        inputs = tuple(layout.spec_of(t) for t in tensors if t is not None)
        call.recorder.record(call.op, inputs, call.outputs, call.args)
        outputs, held = call.recorder.evaluate(call.outputs, tensors, ctx.needs_input_grad[1:])
        ctx.set_materialize_grads(False)
        ctx.call, ctx.inputs, ctx.computed = call, inputs, held is not None
        ctx.shapes = tuple(None if t is None else layout.spec_of(t) for t in tensors)
        if any(ctx.needs_input_grad):
            kept = (*tensors, *outputs) if call.keeps_inputs else ()
            workspace = (call.recorder.fresh(spec) for spec in call.workspace)
            # First in, first out: what a real run computed may hold the memory of the others.
            ctx.save_for_backward(*((held,) if held is not None else ()), *kept, *workspace)
        return outputs

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        call: WholeCall = ctx.call
        held, *kept = ctx.saved_tensors if ctx.computed else (None, *ctx.saved_tensors)
        # kept lives until the gradients exist, as in the real kernel
        wanted = [
            _gradient_spec(call, spec) if spec is not None and needed else None
            for spec, needed in zip(ctx.shapes, ctx.needs_input_grad[1:], strict=True)
        ]
        given = tuple(layout.spec_of(g) for g in grads if g is not None)
        reads = ctx.inputs if call.keeps_inputs else tuple(layout.spec_of(t) for t in kept)
        made = tuple(spec for spec in wanted if spec is not None)
        call.recorder.record(call.op + "_backward", (*reads, *given), made, call.args)
        return None, *call.recorder.gradients(wanted, grads, held)


def _gradient_spec(call: WholeCall, spec: TensorSpec) -> TensorSpec:
    if call.op == "aten::scaled_dot_product_attention" and len(spec.shape) == 4 and spec.dtype == call.outputs[0].dtype:
        # Flash kernels write gradients as (batch, length, heads, width), whatever the operands' layout.
        _, heads, length, width = spec.shape
        return layout.make_spec(spec.shape, (length * heads * width, width, heads * width, 1), spec.dtype)
    # The gradient of an expanded tensor is stored in full.
    return layout.like(spec) if 0 not in spec.stride else layout.dense(spec.shape, spec.dtype)


# --- attention ------------------------------------------------------------------------------------------------------


def attention(
    recorder: Recorder,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """``scaled_dot_product_attention``; args: is_causal, whether there is a mask, dropout_p, enable_gqa."""
    shape = (*query.shape[:-1], value.shape[-1])
    dtype = dtype_name(query.dtype)
    # Flash kernels lay the result out like the query, so that heads split by a view merge by a view.
    source = layout.spec_of(query)
    if len(shape) == 4:
        output = layout.like(layout.make_spec(tuple(shape), source.stride, dtype))
    else:
        output = layout.dense(shape, dtype)
    statistics = layout.dense(shape[:-1], "float32")
    args = (bool(is_causal), attn_mask is not None, float(dropout_p), bool(enable_gqa))
    call = WholeCall(recorder, "aten::scaled_dot_product_attention", args, (output,), (statistics,))
    result: Tensor = call(query, key, value, attn_mask)
    return result


# --- recurrent layers -----------------------------------------------------------------------------------------------

_GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}


def recurrent(name: str) -> Callable[..., Any]:
    """The handler of ``torch.lstm`` and its same_class, for padded and packed sequences.

    Call args: has_biases, num_layers, dropout, train, bidirectional, batch_first, time steps.
    """

    def handler(recorder: Recorder, data: Tensor, second: Any, *rest: Any, **kwargs: Any) -> Any:
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
        output = layout.dense((*data.shape[:-1], directions * width), dtype)
        flags = (bool(train), bool(bidirectional), batch_first)
        args = (bool(has_biases), int(layers), float(dropout), *flags, int(steps))
        rows = data.numel() // max(data.shape[-1], 1)
        cell_width = states[-1].shape[-1]
        gates = layout.dense((rows * layers * directions * (_GATES[name] + 1) * cell_width,), dtype)
        outputs = (output, *(layout.dense(s.shape, dtype) for s in states))
        call = WholeCall(recorder, f"aten::{name}", args, outputs, (gates,))
        return call(data, *states, *weights, *((batch_sizes,) if packed else ()))

    return handler


def cell(name: str) -> Callable[..., Any]:
    """The handler of ``torch.lstm_cell`` and the other cells."""

    def handler(recorder: Recorder, data: Tensor, hidden: Any, *weights: Tensor | None, **kwargs: Tensor | None) -> Any:
        states: tuple[Tensor, ...] = (hidden,) if isinstance(hidden, Tensor) else tuple(hidden)
        outputs = tuple(layout.dense(s.shape, dtype_name(data.dtype)) for s in states)
        gates = layout.dense((*states[0].shape[:-1], _GATES[name] * states[0].shape[-1]), outputs[0].dtype)
        call = WholeCall(recorder, f"aten::{name}_cell", (), outputs, (gates,))
        return call(data, *states, *weights, *kwargs.values())

    return handler


# --- dropout --------------------------------------------------------------------------------------------------------


def dropout_applies(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> bool:  # noqa: A002
    """Whether ``F.dropout`` with these arguments is kept whole; in place it is traced as it is."""
    return bool(training) and 0.0 < p <= 1.0 and not inplace and input.numel() > 0


def dropout(
    recorder: Recorder,
    input: Tensor,  # noqa: A002 - PyTorch's own name
    p: float = 0.5,
    training: bool = True,
    inplace: bool = False,
) -> Tensor:
    """``F.dropout``; args: p. A boolean mask is what backward needs."""
    spec = layout.spec_of(input)
    mask = layout.make_spec(*layout.elementwise_layout([spec]), "bool")
    call = WholeCall(recorder, "aten::dropout", (float(p),), (layout.like(spec),), (mask,), keeps_inputs=False)
    result: Tensor = call(input)
    return result


def mish(recorder: Recorder, input: Tensor, inplace: bool = False) -> Tensor:  # noqa: A002
    """``F.mish``, whose gradient is one kernel on real devices and eight ops on meta tensors."""
    spec = layout.spec_of(input)
    result: Tensor = WholeCall(recorder, "aten::mish", (), (layout.like(spec),))(input)
    return result


def max_pool1d_applies(input: Tensor, *_: Any, return_indices: bool = False, **__: Any) -> bool:  # noqa: A002
    """Whether the kernel without indices serves: nothing will ask for a gradient."""
    return not return_indices and not (torch.is_grad_enabled() and input.requires_grad)


def max_pool1d(
    recorder: Recorder,
    input: Tensor,  # noqa: A002 - PyTorch's own name
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Tensor:
    """``F.max_pool1d`` without a gradient: one kernel of its own, where with one it is a two-dimensional pooling."""
    kernel, pad, gap = (int(v[0]) if isinstance(v, (tuple, list)) else int(v) for v in (kernel_size, padding, dilation))
    given = stride[0] if isinstance(stride, (tuple, list)) and stride else stride
    step = int(given) if given else kernel
    span = input.shape[-1] + 2 * pad - gap * (kernel - 1) - 1
    length = (-(-span // step) if ceil_mode else span // step) + 1
    spec = layout.dense((*input.shape[:-1], length), layout.spec_of(input).dtype)
    return inference_call(recorder, "aten::max_pool1d", (kernel, step, pad, gap, ceil_mode), (spec,), (input,))[0]


def inference_call(recorder: Recorder, op: str, args: tuple[Hashable, ...], outputs: Sequence[TensorSpec],
                   tensors: Sequence[Tensor | None], compute: Callable[[], Any] | None = None,
                   ) -> tuple[Tensor, ...]:  # fmt: skip
    """A whole op that has no gradient. ``compute`` gives its outputs; None: the function it was caught as does."""
    recorder.record(op, tuple(layout.spec_of(t) for t in tensors if t is not None), tuple(outputs), args)
    return recorder.results(outputs, compute)
