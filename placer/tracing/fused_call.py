"""A fused op as one recorded call, and one ``_backward`` call when autograd comes back through it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from placer.tracing import layout
from placer.tracing.recorder import Recorder
from placer.tracing.trace_data import TensorSpec
from placer.tracing.unfollowed import DifferentiatedTwice


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
        inputs = tuple(layout.spec_of(t) for t in tensors if t is not None)
        call.recorder.log.record(call.op, inputs, call.outputs, call.args)
        outputs, held = call.recorder.evaluate(call.outputs, tensors, ctx.needs_input_grad[1:])
        call.recorder.log.connect(tensors, outputs)
        ctx.set_materialize_grads(False)
        ctx.call, ctx.inputs, ctx.computed = call, inputs, held is not None
        ctx.shapes = tuple(None if t is None else layout.spec_of(t) for t in tensors)
        if any(ctx.needs_input_grad):
            kept = (*tensors, *outputs) if call.keeps_inputs else ()
            workspace = (call.recorder.fresh(spec) for spec in call.workspace)
            # ``held`` comes first, so that it is freed first: a real run may hold the memory of the others through it.
            ctx.save_for_backward(*((held,) if held is not None else ()), *kept, *workspace)
        return outputs

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        call: FusedCall = ctx.call
        if torch.is_grad_enabled():
            raise DifferentiatedTwice(f"the step differentiates {call.op} twice")
        held, *kept = ctx.saved_tensors if ctx.computed else (None, *ctx.saved_tensors)
        # ``kept`` lives until the gradients exist, as in the real kernel.
        wanted = [
            _gradient_spec(call, spec) if spec is not None and needed else None
            for spec, needed in zip(ctx.shapes, ctx.needs_input_grad[1:], strict=True)
        ]
        given = tuple(layout.spec_of(g) for g in grads if g is not None)
        reads = ctx.inputs if call.keeps_inputs else tuple(layout.spec_of(t) for t in kept)
        made = tuple(spec for spec in wanted if spec is not None)
        call.recorder.log.record(call.op + "_backward", (*reads, *given), made, call.args)
        gradients = call.recorder.gradients(wanted, grads, held)
        call.recorder.log.connect((*kept, *grads), gradients)
        return None, *gradients


def _gradient_spec(call: FusedCall, spec: TensorSpec) -> TensorSpec:
    if call.op == "aten::scaled_dot_product_attention" and len(spec.shape) == 4 and spec.dtype == call.outputs[0].dtype:
        # Flash kernels write gradients as (batch, length, heads, width), whatever the operands' layout.
        _, heads, length, width = spec.shape
        return layout.make_spec(spec.shape, (length * heads * width, width, heads * width, 1), spec.dtype)
    # The gradient of an expanded tensor is stored in full.
    return layout.like(spec) if 0 not in spec.stride else layout.dense(spec.shape, spec.dtype)


def inference_call(recorder: Recorder, op: str, args: tuple[Hashable, ...], outputs: Sequence[TensorSpec],
                   tensors: Sequence[Tensor | None], compute: Callable[[], Any] | None = None,
                   ) -> tuple[Tensor, ...]:  # fmt: skip
    """A fused op that has no gradient. ``compute`` gives its outputs; with None, the caught function does."""
    recorder.log.record(op, tuple(layout.spec_of(t) for t in tensors if t is not None), tuple(outputs), args)
    results = recorder.results(outputs, compute)
    recorder.log.connect(tensors, results)
    return results
