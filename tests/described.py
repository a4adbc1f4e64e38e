"""Op calls described by hand, and those of small modules: for tests of families and of what describes them."""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import Any

from torch import nn

from placer.pricing.shapes.shape import Work
from placer.pricing.work import Context, describe
from placer.tracing import trace
from placer.tracing.trace_data import OpCall, TensorSpec
from placer.workload import make_workload

HERE = Context(footprint_bytes=1000, recording=True)


def spec(*shape: int, stride: tuple[int, ...] | None = None, dtype: str = "float32") -> TensorSpec:
    if stride is None:
        stride = tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))
    return TensorSpec(shape, stride, dtype)


def work(op: str, inputs: list[TensorSpec], outputs: list[TensorSpec], *args: Hashable, **facts: Any) -> Work:
    return describe(OpCall(op, tuple(inputs), tuple(outputs), args, **facts), HERE)


def traced(model: nn.Module, op: str, *shapes: tuple[int, ...], mode: str = "train", **workload: Any) -> Work:
    """The only call of ``op`` in a step of ``model``."""
    step = trace(make_workload(model, shapes or None, mode=mode, **workload))
    (call,) = (call for call in step.calls if call.op == op)
    return describe(call, Context.of(step))
