"""Workload -> Trace: the op calls of one step, found in a child process, on tensors without values or in a real run."""

from placer.tracing import child
from placer.tracing.copies import meta_model
from placer.tracing.isolation import without_compiler
from placer.tracing.operators import CHECKS, COUNTS, READS
from placer.tracing.optimizers import device_flags
from placer.tracing.python_calls import stands_for
from placer.tracing.trace_data import (
    MissingKernel,
    OpCall,
    TensorSpec,
    Trace,
    broadcast_strides,
    dense,
    once_per_trace,
)
from placer.tracing.tracer import trace, trace_here

__all__ = [
    "CHECKS",
    "COUNTS",
    "MissingKernel",
    "OpCall",
    "READS",
    "TensorSpec",
    "Trace",
    "broadcast_strides",
    "child",
    "dense",
    "device_flags",
    "meta_model",
    "once_per_trace",
    "stands_for",
    "trace",
    "trace_here",
    "without_compiler",
]
