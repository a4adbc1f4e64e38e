"""Trace x Profile -> Prediction: describes the op calls of a step, prices them, and adds them up to a step time.

What the catalog's GPUs are priced by is loaded on first use: most decisions are between devices that were calibrated.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from placer.pricing import timeline
from placer.pricing.contention import LONG_STEPS, MANY_TURNS, ONE_TURN, long_share, waiting_doubt, waiting_seconds
from placer.pricing.copies import FRESH, SIZES, copies_of_steps, copy_seconds
from placer.pricing.cost_model import CostModel, check_current, is_current
from placer.pricing.cpu_devices import cpu_from_sheet, cpu_from_speeds, nearest_profile, speeds_of_sheet, starting
from placer.pricing.describe import (
    Context,
    describe,
    describe_step,
    feature_names,
    is_update,
    on_accelerator,
    size_count,
    work_of_features,
)
from placer.pricing.device_memory import Residence
from placer.pricing.effort import counted
from placer.pricing.estimate import cpu_profile, estimated_profile, named_profile
from placer.pricing.families import FAMILIES
from placer.pricing.framework import (
    BACKWARD,
    FORWARD,
    HOST_DOUBT,
    LEARNT,
    UPDATE,
    framework_counts,
    framework_seconds,
)
from placer.pricing.host_costs import HOST_WORK, host_framework
from placer.pricing.many_cores import cut_of, share_of, shared_seconds
from placer.pricing.networks import CPU_FILE, Network, cpu_document, cpu_edition, cpu_network, packed, packed_layer
from placer.pricing.ops import COUNTED, NO_ROW, OPS_FILE, QUANTIZED, UPDATE_PREFIX, Effort, Op, family_of, row_of, table
from placer.pricing.physics import (
    COMPUTE_PARTS,
    FRESH_FROM,
    FRESH_RATE,
    STARTING,
    Bounds,
    bounds,
    compute_parts,
    cores_of,
    cpu_inputs,
    fresh_seconds,
    peak,
    start_share,
    step_bounds,
    table_seconds,
)
from placer.pricing.predict import Z90, doubt, predict
from placer.pricing.prediction import (
    NOT_PREDICTED,
    SOURCES,
    Cost,
    Prediction,
    PricedTrace,
    Provenance,
    Source,
    backed,
    weakest,
)
from placer.pricing.shapes import FINE_GRAIN
from placer.pricing.speeds import CpuSpeeds, beside, small_step_seconds
from placer.pricing.timeline import (
    KERNELS,
    Span,
    host_seconds,
    issued_as,
    kernels_of,
    pause_seconds,
    waits_for_device,
)
from placer.pricing.work import VARIANT, Place, Work, inputs_of, known_labels, op_label

if TYPE_CHECKING:
    from placer.pricing.gpu.apple import missing_op
    from placer.pricing.gpu.catalog_profile import gpu_profile
    from placer.pricing.gpu.device_model import device_model

#: Module of each name that is loaded on first use.
_HOMES = {"device_model": "device_model", "gpu_profile": "catalog_profile", "missing_op": "apple"}

__all__ = [
    "BACKWARD", "Bounds", "COMPUTE_PARTS", "COUNTED", "CPU_FILE", "Context", "Cost", "CostModel", "CpuSpeeds",
    "Effort", "FAMILIES", "FINE_GRAIN", "FORWARD", "FRESH", "FRESH_FROM", "FRESH_RATE", "HOST_DOUBT", "HOST_WORK",
    "KERNELS", "LEARNT", "LONG_STEPS", "MANY_TURNS", "NOT_PREDICTED", "NO_ROW", "Network", "ONE_TURN", "OPS_FILE",
    "Op", "Place", "Prediction", "PricedTrace", "Provenance", "QUANTIZED", "Residence", "SIZES", "SOURCES",
    "STARTING", "Source", "Span", "UPDATE", "UPDATE_PREFIX", "VARIANT", "Work", "Z90", "backed", "beside", "bounds",
    "check_current", "compute_parts", "copies_of_steps", "copy_seconds", "cores_of", "counted", "cpu_document",
    "cpu_edition", "cpu_from_sheet", "cpu_from_speeds", "cpu_inputs", "cpu_network", "cpu_profile", "cut_of",
    "describe", "describe_step", "device_model", "doubt", "estimated_profile", "family_of", "feature_names",
    "framework_counts", "framework_seconds", "fresh_seconds", "gpu", "gpu_profile", "host_framework",
    "host_seconds", "inputs_of", "is_current", "is_update", "issued_as", "kernels_of", "known_labels", "long_share",
    "missing_op", "named_profile", "nearest_profile", "on_accelerator", "op_label", "packed", "packed_layer",
    "pause_seconds", "peak", "predict", "row_of", "share_of", "shared_seconds", "size_count", "small_step_seconds",
    "speeds_of_sheet", "start_share", "starting", "step_bounds", "table", "table_seconds", "timeline",
    "waiting_doubt", "waiting_seconds", "waits_for_device", "weakest", "work_of_features",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Load a name on first use (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module 'placer.pricing' has no attribute {name!r}")
    return getattr(importlib.import_module(f"placer.pricing.gpu.{_HOMES[name]}"), name)
