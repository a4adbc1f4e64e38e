"""Trace x Profile -> Prediction: describes the op calls of a step, prices them, and adds them up to a step time.

What the catalog's GPUs are priced by is loaded on first use: most decisions are between devices that were calibrated.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from placer.pricing import timeline
from placer.pricing.cost_model import CostModel
from placer.pricing.describe import (
    CONTEXT_SIZES,
    PLACE,
    VARIANT,
    Context,
    amounts,
    describe,
    describe_step,
    feature_names,
    fitted_features,
    foreign_family,
    inputs_of,
    on_accelerator,
    op_label,
)
from placer.pricing.device_memory import Residence
from placer.pricing.estimate import (
    COPIED,
    CpuSpeeds,
    beside,
    estimated_profile,
    named_profile,
    nearest_profile,
    on_other_cpu,
    small_step_seconds,
)
from placer.pricing.families import FAMILIES, PER_CORE, parameter_updates
from placer.pricing.floors import (
    ARITHMETIC_BY_FLOOR,
    COMPUTE_PARTS,
    LOOPS_BY_FLOOR,
    PUBLISHED,
    compute_parts,
    floor_amounts,
    floor_parts,
    peak,
    roofline_parts,
    roofline_seconds,
)
from placer.pricing.framework import (
    BACKWARD,
    FORWARD,
    LEARNT,
    UPDATE,
    framework_counts,
    framework_seconds,
)
from placer.pricing.gaussian_process import covariance, distances, with_weights
from placer.pricing.predict import Z90, doubt, predict
from placer.pricing.prediction import (
    NOT_PREDICTED,
    SOURCES,
    Bound,
    Prediction,
    PricedTrace,
    Provenance,
    backed,
    weakest,
)
from placer.pricing.split import SUFFIX as SPLIT_SUFFIX
from placer.pricing.split import on_both, predict_split
from placer.pricing.timeline import (
    HOST,
    HOST_UPDATE,
    KERNELS,
    QUEUE_DEPTH,
    Clocks,
    ScheduleItem,
    Span,
    host_seconds,
    issued_as,
    kernels_of,
    pause_seconds,
    waits_for_device,
)
from placer.pricing.work import Work

if TYPE_CHECKING:
    from placer.pricing.gpu.catalog_profile import gpu_profile
    from placer.pricing.gpu.device_model import device_model

__all__ = [
    # What a step takes.
    "Prediction",
    "PricedTrace",
    "NOT_PREDICTED",
    "Provenance",
    "Bound",
    "COMPUTE_PARTS",
    "compute_parts",
    "backed",
    "SOURCES",
    "weakest",
    "predict",
    "predict_split",
    "on_both",
    "SPLIT_SUFFIX",
    "Residence",
    "doubt",
    "Z90",
    "timeline",
    "Span",
    "Clocks",
    "ScheduleItem",
    "QUEUE_DEPTH",
    # What an op is: its family, amounts and features.
    "Work",
    "FAMILIES",
    "describe",
    "describe_step",
    "Context",
    "amounts",
    "PER_CORE",
    "PLACE",
    "on_accelerator",
    "feature_names",
    "CONTEXT_SIZES",
    "parameter_updates",
    # What an op takes: its floor, the residual over it, page faults, and the host's time to issue it.
    "CostModel",
    "roofline_seconds",
    "roofline_parts",
    "peak",
    "floor_amounts",
    "floor_parts",
    "ARITHMETIC_BY_FLOOR",
    "LOOPS_BY_FLOOR",
    "PUBLISHED",
    "op_label",
    "VARIANT",
    "inputs_of",
    "fitted_features",
    "foreign_family",
    "covariance",
    "distances",
    "with_weights",
    "host_seconds",
    "issued_as",
    "HOST",
    "HOST_UPDATE",
    "KERNELS",
    "kernels_of",
    "pause_seconds",
    "waits_for_device",
    # What a GPU of the catalog takes, and its profile.
    "gpu",
    "device_model",
    "gpu_profile",
    "named_profile",
    # What is known of a machine that was not calibrated.
    "CpuSpeeds",
    "COPIED",
    "on_other_cpu",
    "nearest_profile",
    "beside",
    "small_step_seconds",
    "estimated_profile",
    # What the framework takes between the ops.
    "framework_counts",
    "framework_seconds",
    "LEARNT",
    "FORWARD",
    "BACKWARD",
    "UPDATE",
]

#: Module of each name that is loaded on first use.
_HOMES = {
    "device_model": "device_model",
    "gpu_profile": "catalog_profile",
}


def __getattr__(name: str) -> Any:
    """Load a name on first use (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module 'placer.pricing' has no attribute {name!r}")
    return getattr(importlib.import_module(f"placer.pricing.gpu.{_HOMES[name]}"), name)
