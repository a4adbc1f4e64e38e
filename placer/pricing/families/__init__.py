"""The families of ops. To add one, define a ``Family`` beside those it is like, and list it in ``FAMILIES``."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from placer.pricing.families import loops, moves, parameter_updates, products, quantized
from placer.pricing.families.family import FINE_GRAIN, PER_CORE, Family, Features

__all__ = ["FAMILIES", "FINE_GRAIN", "PER_CORE", "Family", "Features", "family_of", "parameter_updates"]

#: All families by name.
FAMILIES: Mapping[str, Family] = {
    family.name: family
    for family in (
        moves.VIEW, products.MATMUL, products.CONVOLUTION, products.CONVOLUTION_BACKWARD, loops.ELEMENTWISE,
        loops.REDUCTION, loops.SOFTMAX, loops.NORMALIZATION, loops.POOLING, moves.INDEXING, products.ATTENTION,
        products.ENCODER, products.RECURRENT, products.LINEAR_ALGEBRA, products.FOURIER, loops.RANDOM, loops.SORTING,
        parameter_updates.OPTIMIZER, quantized.QUANTIZED, moves.OTHER,
    )
}  # fmt: skip
_FAMILY_OF = {op: family.name for family in FAMILIES.values() for op in family.ops}


@lru_cache(maxsize=4096)
def family_of(op: str) -> str | None:
    """The name of the family that lists ``op``; None where none does (``describe`` then looks at the operands)."""
    if op in _FAMILY_OF:
        return _FAMILY_OF[op]
    for family in FAMILIES.values():
        if op.startswith(family.prefixes):
            return family.name
    return None if op.startswith("aten::") else moves.OTHER.name
