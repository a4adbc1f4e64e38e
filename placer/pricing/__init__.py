"""Trace x Profile -> Prediction: describes the op calls of a step, prices them, and adds them up to a step time."""

from __future__ import annotations

from placer.pricing import gpu, timeline
from placer.pricing.cost_model import CostModel, check_current, is_current
from placer.pricing.cpu_devices import CpuSpeeds, cpu_from_sheet, cpu_from_speeds, nearest_profile, starting
from placer.pricing.effort import counted
from placer.pricing.estimate import cpu_profile, estimated_profile, named_profile
from placer.pricing.framework import (
    BACKWARD,
    FORWARD,
    HOST_DOUBT,
    HOST_WORK,
    KERNELS,
    LEARNT,
    UPDATE,
    framework_counts,
    framework_seconds,
    host_framework,
    host_seconds,
    issued_as,
)
from placer.pricing.gpu.apple import missing_op
from placer.pricing.gpu.catalog_profile import gpu_profile
from placer.pricing.gpu.device_model import device_model
from placer.pricing.networks import CPU_FILE, Network, cpu_document, cpu_edition, cpu_network, packed, packed_layer
from placer.pricing.ops import COUNTED, NO_ROW, OPS_FILE, QUANTIZED, UPDATE_PREFIX, Effort, Op, family_of, table
from placer.pricing.physics import (
    COMPUTE_PARTS,
    FRESH_FROM,
    FRESH_RATE,
    STARTING,
    bounds,
    compute_parts,
    cores_of,
    cpu_inputs,
    cut_of,
    fresh_seconds,
    peak,
    share_of,
    shared_seconds,
    start_share,
    step_bounds,
)
from placer.pricing.predict import Z90, Residence, doubt, predict
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
from placer.pricing.shapes import FAMILIES
from placer.pricing.shapes.shape import FINE_GRAIN, Work
from placer.pricing.speeds import beside, small_step_seconds
from placer.pricing.timeline import (
    FRESH,
    LONG_STEPS,
    MANY_TURNS,
    SIZES,
    Span,
    copies_of_steps,
    copy_seconds,
    long_share,
    waits_for_device,
)
from placer.pricing.work import (
    Context,
    describe,
    describe_step,
    feature_names,
    inputs_of,
    is_update,
    known_labels,
    on_accelerator,
    op_label,
    work_of_features,
)

__all__ = [
    "BACKWARD", "COMPUTE_PARTS", "COUNTED", "CPU_FILE", "Context", "Cost", "CostModel", "CpuSpeeds", "Effort",
    "FAMILIES", "FINE_GRAIN", "FORWARD", "FRESH", "FRESH_FROM", "FRESH_RATE", "HOST_DOUBT", "HOST_WORK", "KERNELS",
    "LEARNT", "LONG_STEPS", "MANY_TURNS", "NOT_PREDICTED", "NO_ROW", "Network", "OPS_FILE", "Op", "Prediction",
    "PricedTrace", "Provenance", "QUANTIZED", "Residence", "SIZES", "SOURCES", "STARTING", "Source", "Span", "UPDATE",
    "UPDATE_PREFIX", "Work", "Z90", "backed", "beside", "bounds", "check_current", "compute_parts", "copies_of_steps",
    "copy_seconds", "cores_of", "counted", "cpu_document", "cpu_edition", "cpu_from_sheet", "cpu_from_speeds",
    "cpu_inputs", "cpu_network", "cpu_profile", "cut_of", "describe", "describe_step", "device_model", "doubt",
    "estimated_profile", "family_of", "feature_names", "framework_counts", "framework_seconds", "fresh_seconds", "gpu",
    "gpu_profile", "host_framework", "host_seconds", "inputs_of", "is_current", "is_update", "issued_as",
    "known_labels", "long_share", "missing_op", "named_profile", "nearest_profile", "on_accelerator", "op_label",
    "packed", "packed_layer", "peak", "predict", "share_of", "shared_seconds", "small_step_seconds", "start_share",
    "starting", "step_bounds", "table", "timeline", "waits_for_device", "weakest", "work_of_features",
]  # fmt: skip
