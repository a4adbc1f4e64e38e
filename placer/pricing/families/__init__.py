"""The families of ops. To add one, write a file that defines a ``Family`` and list it in ``FAMILIES``."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from placer.pricing.families import (
    attention,
    convolution,
    elementwise,
    encoder,
    fourier,
    indexing,
    linear_algebra,
    matmul,
    normalization,
    optimizer,
    other,
    pooling,
    random,
    recurrent,
    reduction,
    softmax,
    sorting,
    view,
)
from placer.pricing.families.family import Family, Features
from placer.pricing.families.sharing import PER_CORE, per_core

__all__ = ["FAMILIES", "PER_CORE", "Family", "Features", "family_of", "per_core"]

#: All families by name.
FAMILIES: Mapping[str, Family] = {
    family.name: family
    for family in (
        view.FAMILY,
        matmul.FAMILY,
        convolution.FORWARD,
        convolution.BACKWARD,
        elementwise.FAMILY,
        reduction.FAMILY,
        softmax.FAMILY,
        normalization.FAMILY,
        pooling.FAMILY,
        indexing.FAMILY,
        attention.FAMILY,
        encoder.FAMILY,
        recurrent.FAMILY,
        linear_algebra.FAMILY,
        fourier.FAMILY,
        random.FAMILY,
        sorting.FAMILY,
        optimizer.FAMILY,
        other.FAMILY,
    )
}
_FAMILY_OF = {op: family.name for family in FAMILIES.values() for op in family.ops}


@lru_cache(maxsize=4096)
def family_of(op: str) -> str | None:
    """The name of the family that lists ``op``; None where none does (``describe`` then looks at the operands)."""
    if op in _FAMILY_OF:
        return _FAMILY_OF[op]
    for family in FAMILIES.values():
        if op.startswith(family.prefixes):
            return family.name
    return None if op.startswith("aten::") else other.FAMILY.name
