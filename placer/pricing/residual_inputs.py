"""The regression inputs of a family's residual: what a fit was made of, and what this version gives for an op."""

from __future__ import annotations

import math

from placer.pricing.describe import feature_names
from placer.pricing.families import FAMILIES
from placer.pricing.work import Work
from placer.profile import DeviceFit


def fitted_features(family: str) -> tuple[str, ...]:
    """Names of the inputs, in order; () for a family this version does not know."""
    return ("flops", "bytes", *feature_names(family)) if family in FAMILIES else ()


def inputs_of(work: Work) -> tuple[float, ...]:
    """The inputs of one op: amounts and sizes on a log2 scale, flags as they are."""
    sizes = (work.flops, work.bytes, *work.sizes)
    return (*(math.log2(1.0 + a) for a in sizes), *work.flags)


def foreign_family(fit: DeviceFit) -> str | None:
    """A family that was fitted on other features than this version describes ops by; None where there is none."""
    return next((name for name, f in fit.families.items() if f.feature_names != fitted_features(name)), None)
