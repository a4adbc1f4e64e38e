"""Output specs of common ops as formulas, agreeing with the real CPU kernels in shape, strides and dtype.

A formula takes the tensor arguments and the other arguments by name. It answers None when it does not cover the case,
and the op's meta kernel runs instead. A new family is one module with a table ``FORMULAS``, and one line below.
"""

from __future__ import annotations

from placer.tracing.formulas import losses, normalization, pooling, products, reductions, shapes
from placer.tracing.formulas.base import Formula, Specs

__all__ = ["FORMULAS", "Formula", "Specs"]

#: By the op's name without its overload.
FORMULAS: dict[str, Formula] = {
    **normalization.FORMULAS,
    **products.FORMULAS,
    **reductions.FORMULAS,
    **losses.FORMULAS,
    **shapes.FORMULAS,
    **pooling.FORMULAS,
}
