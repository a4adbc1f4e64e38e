"""Workload -> Trace, on meta tensors."""

from placer.tracing.trace import OpCall, Phase, TensorSpec, Trace
from placer.tracing.tracer import trace

__all__ = ["OpCall", "Phase", "TensorSpec", "Trace", "trace"]
