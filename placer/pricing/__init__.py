"""Trace x Profile -> Prediction: describes the op calls of a step, prices them, and adds them up to a step time."""

from __future__ import annotations

from placer.pricing import framework, gpu, networks, ops, physics, speeds, timeline
from placer.pricing.cost_model import CostModel, check_current, is_current
from placer.pricing.cpu_devices import (
    CpuSpeeds,
    cpu_from_sheet,
    cpu_from_speeds,
    nearest_profile,
    of_known_class,
    starting,
)
from placer.pricing.effort import counted
from placer.pricing.estimate import cpu_profile, estimated_profile, named_profile
from placer.pricing.gpu.apple import missing_op
from placer.pricing.gpu.catalog_profile import gpu_profile
from placer.pricing.gpu.device_model import device_model
from placer.pricing.ops import UPDATE_PREFIX, family_of
from placer.pricing.physics import COMPUTE_PARTS, compute_parts, step_bounds
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
from placer.pricing.timeline import Span
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
    "COMPUTE_PARTS", "Context", "Cost", "CostModel", "CpuSpeeds", "FAMILIES", "FINE_GRAIN", "NOT_PREDICTED",
    "Prediction", "PricedTrace", "Provenance", "Residence", "SOURCES", "Source", "Span", "UPDATE_PREFIX", "Work",
    "Z90", "backed", "check_current", "compute_parts", "counted", "cpu_from_sheet", "cpu_from_speeds", "cpu_profile",
    "describe", "describe_step", "device_model", "doubt", "estimated_profile", "family_of", "feature_names",
    "framework", "gpu", "gpu_profile", "inputs_of", "is_current", "is_update", "known_labels", "missing_op",
    "named_profile", "nearest_profile", "networks", "of_known_class", "on_accelerator", "op_label", "ops", "physics",
    "predict", "speeds", "starting", "step_bounds", "timeline", "weakest", "work_of_features",
]  # fmt: skip
