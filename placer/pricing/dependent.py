"""Loads that follow each other in the busiest thread of an accelerator's kernel, by op.

A kernel of few blocks is bound by neither arithmetic nor bandwidth: each of its threads waits for one load after the
other. A layer norm over 4 million numbers is one block of 128 threads, and takes 8 to 10 ms on a T4 and on an H100
alike. The sizes of blocks are those of ATen/native/cuda (layer_norm_kernel.cu, group_norm_kernel.cu,
Normalization.cuh, PersistentSoftmax.cuh, SoftMax.cu, NLLLoss.cu). Scans and selections: ``op_table``.
"""

from __future__ import annotations

import math

from placer.pricing.op_amounts import dimension, row_of
from placer.tracing import OpCall, TensorSpec

#: Elements that the threads of a block take in one step, by op; a norm's block takes one row or one channel.
_LAYER, _GROUP, _BATCH, _SOFTMAX = 512, 512, 1024, 4096
#: Threads that add up the losses of a batch.
_LOSS_THREADS = 32


def dependent_loads(call: OpCall) -> float:
    """Loads that follow each other in the busiest thread; 0.0 of an op that fills the device whatever its shape."""
    name = call.op
    source = max(call.inputs, key=lambda t: t.numel, default=None)
    if source is None or not source.numel:
        return 0.0
    if "norm" in name and "vector_norm" not in name:
        return _of_norm(call, source)
    if "softmax" in name:
        shape = call.inputs[0].shape
        row, inner = row_of(call), math.prod(shape[dimension(call) + 1 :]) if shape else 1
        return 3.0 * row / _SOFTMAX if inner == 1 else 3.0 * row / min(max(1024 // inner, 1), 1024)
    if name == "aten::nll_loss_forward":
        return 2.0 * (source.shape[0] if len(source.shape) > 1 else 1) / _LOSS_THREADS
    return 0.0


def _of_norm(call: OpCall, source: TensorSpec) -> float:
    """Of a norm: elements of a row, a group or a channel over those that a block takes in one step."""
    weights = [t.numel for t in call.inputs if t.numel < source.numel]
    if "batch_norm" in call.op:
        training = call.op.endswith("backward") or any(argument is True for argument in call.args)
        channels = source.shape[1] if len(source.shape) > 1 else 1
        return source.numel / max(channels, 1) / _BATCH if training else 0.0
    if "group_norm" in call.op:
        groups = max((t.numel for t in call.outputs if len(t.shape) == 2), default=source.shape[0])
        return source.numel / max(groups, 1) / _GROUP
    row = max((size for size in (*weights, _normalized(call)) if size), default=source.shape[-1] if source.shape else 1)
    return 2.0 * row / _LAYER


def _normalized(call: OpCall) -> int:
    """Elements of the dimensions that a layer norm names; 0 where it names none."""
    return next((math.prod(argument) for argument in call.args if isinstance(argument, tuple)), 0)
