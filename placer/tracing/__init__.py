"""Workload -> Trace: the op calls of one step, found on meta tensors or, where that fails, in a real run of a copy."""

from placer.tracing.layout import broadcast_strides
from placer.tracing.meta_copies import meta_inputs, meta_model, meta_optimizer
from placer.tracing.op_arguments import CHECKS, COUNTS, READS
from placer.tracing.trace_data import MemoryEvent, OpCall, Phase, TensorSpec, Trace, once_per_trace
from placer.tracing.tracer import trace

__all__ = [
    "CHECKS",
    "COUNTS",
    "MemoryEvent",
    "OpCall",
    "Phase",
    "READS",
    "TensorSpec",
    "Trace",
    "broadcast_strides",
    "meta_inputs",
    "meta_model",
    "meta_optimizer",
    "once_per_trace",
    "trace",
]
