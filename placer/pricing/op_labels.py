"""The names that fitted costs are stored under: op, variant and dtype."""

from __future__ import annotations

from placer.pricing.families import FAMILIES
from placer.pricing.kernels import SUFFIX
from placer.pricing.work import Work

#: Separates an op's name from its variant.
VARIANT = "/"


def op_label(work: Work) -> str:
    """The name that an op's costs are fitted under: ``op``, ``op/variant``, ``op:dtype`` or ``op/variant:dtype``.

    A variant is another op, and so is any dtype but float32. Whether an op writes in place is a feature, not a name.
    """
    op, dot, kernel = work.op.partition(SUFFIX)
    name, variant = f"{op.rstrip('_')}{dot}{kernel}", FAMILIES[work.family].variant(work)
    if variant:
        name = f"{name}{VARIANT}{variant}"
    return name if work.dtype == "float32" else f"{name}:{work.dtype}"


def known_labels(work: Work) -> tuple[str, ...]:
    """The names a fit may know an op by, closest first: its own, then the one without its kernel's suffix."""
    label = op_label(work)
    name, dot, rest = label.partition(SUFFIX)
    if not dot:
        return (label,)
    _, colon, dtype = rest.partition(":")
    return label, f"{name}{colon}{dtype}"
