"""Trace x Profile -> Prediction: describes the op calls of a step, prices them, and adds them up to a step time."""

from placer.pricing import parameter_updates, timeline
from placer.pricing.cost_model import CostModel
from placer.pricing.describe import amounts, describe_step, feature_names, ops_inside
from placer.pricing.families import FAMILIES, PER_CORE
from placer.pricing.floors import (
    ARITHMETIC_BY_FLOOR,
    LOOPS_BY_FLOOR,
    UNMEASURED_RATE,
    floor_parts,
    roofline_seconds,
)
from placer.pricing.framework import (
    BACKWARD,
    FORWARD,
    LEARNT,
    LONG_FORWARD,
    UPDATE,
    framework_counts,
    framework_seconds,
)
from placer.pricing.gaussian_process import covariance, distances, with_weights
from placer.pricing.host_time import HOST, HOST_UPDATE, host_seconds
from placer.pricing.op_labels import VARIANT, op_label
from placer.pricing.page_faults import fault_seconds
from placer.pricing.predict import Z90, doubt, predict
from placer.pricing.prediction import NOT_PREDICTED, Prediction, PricedTrace
from placer.pricing.residual_inputs import fitted_features, foreign_family, inputs_of
from placer.pricing.step_context import CONTEXT_SIZES
from placer.pricing.timeline import Span
from placer.pricing.work import Work

__all__ = [
    # What a step takes.
    "Prediction",
    "PricedTrace",
    "NOT_PREDICTED",
    "predict",
    "doubt",
    "Z90",
    "timeline",
    "Span",
    # What an op is: its family, amounts and features.
    "Work",
    "FAMILIES",
    "describe_step",
    "amounts",
    "PER_CORE",
    "feature_names",
    "CONTEXT_SIZES",
    "ops_inside",
    "parameter_updates",
    # What an op takes: its floor, the residual over it, page faults, and the host's time to issue it.
    "CostModel",
    "roofline_seconds",
    "UNMEASURED_RATE",
    "floor_parts",
    "ARITHMETIC_BY_FLOOR",
    "LOOPS_BY_FLOOR",
    "op_label",
    "VARIANT",
    "inputs_of",
    "fitted_features",
    "foreign_family",
    "covariance",
    "distances",
    "with_weights",
    "fault_seconds",
    "host_seconds",
    "HOST",
    "HOST_UPDATE",
    # What the framework takes between the ops.
    "framework_counts",
    "framework_seconds",
    "LEARNT",
    "FORWARD",
    "BACKWARD",
    "UPDATE",
    "LONG_FORWARD",
]
