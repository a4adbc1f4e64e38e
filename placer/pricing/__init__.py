"""Trace x Profile -> Prediction: the operators and their features, op costs, framework, memory, timeline."""

from placer.pricing import parameter_updates, timeline
from placer.pricing.context import CONTEXT_SIZES
from placer.pricing.costs import (
    ARITHMETIC_TOLD,
    HOST,
    HOST_UPDATE,
    LOOPS_TOLD,
    UNMEASURED_RATE,
    VARIANT,
    CostModel,
    fitted_features,
    floor_parts,
    foreign_family,
    host_seconds,
    inputs_of,
    op_label,
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
from placer.pricing.operators import FAMILIES, Work, amounts, describe_step, feature_names, ops_inside
from placer.pricing.page_faults import fault_seconds
from placer.pricing.predict import Z90, doubt, predict
from placer.pricing.prediction import NOT_PREDICTED, Prediction, PricedTrace
from placer.pricing.sharing import PER_CORE
from placer.pricing.timeline import Span

__all__ = [
    "ARITHMETIC_TOLD",
    "BACKWARD",
    "CONTEXT_SIZES",
    "FAMILIES",
    "FORWARD",
    "HOST",
    "HOST_UPDATE",
    "LEARNT",
    "LONG_FORWARD",
    "LOOPS_TOLD",
    "NOT_PREDICTED",
    "PER_CORE",
    "UNMEASURED_RATE",
    "UPDATE",
    "VARIANT",
    "Z90",
    "CostModel",
    "Prediction",
    "PricedTrace",
    "Span",
    "Work",
    "amounts",
    "covariance",
    "describe_step",
    "distances",
    "doubt",
    "fault_seconds",
    "feature_names",
    "fitted_features",
    "floor_parts",
    "foreign_family",
    "framework_counts",
    "framework_seconds",
    "host_seconds",
    "inputs_of",
    "op_label",
    "ops_inside",
    "parameter_updates",
    "predict",
    "roofline_seconds",
    "timeline",
    "with_weights",
]
