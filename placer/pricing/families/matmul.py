"""Matrix products, single ones and batches, and products with vectors."""

from __future__ import annotations

from placer.pricing.families.family import Family, Features, aten
from placer.pricing.families.vector_registers import padded, ragged
from placer.pricing.work import Work
from placer.tracing import OpCall, TensorSpec


def _read(call: OpCall) -> Features:
    """FLOPs: 2 x batch x m x n x k."""
    # addmm, baddbmm and addmv carry the bias first.
    a, b = call.inputs[-2:]
    batch = a.shape[0] if len(a.shape) == 3 else 1
    m = a.shape[-2] if len(a.shape) > 1 else 1
    k = a.shape[-1] if a.shape else 1
    n = b.shape[-1] if len(b.shape) > 1 else 1
    elements = (batch * m * k, batch * k * n, batch * m * n)
    flags = (float(_is_transposed(a)), float(_is_transposed(b)), float(m == 1), float(n == 1), ragged(n))
    return Features(2.0 * batch * m * n * k, (batch, m, n, k, *elements, min(m, n, k)), flags)


def _is_transposed(spec: TensorSpec) -> bool:
    return len(spec.shape) > 1 and spec.stride[-1] != 1 and spec.shape[-1] != 1


def _padding_flops(work: Work) -> float:
    """Arithmetic on rows and columns that only pad the result's last tiles."""
    m, n = work.sizes[1:3]
    return work.flops * (padded(m) * padded(n) - 1.0)


def _rows(work: Work) -> float:
    """Rows of all results. Each is started anew, which takes most of the time where thousands of them are short."""
    batch, m = work.sizes[:2]
    return batch * m


def _depth(work: Work) -> float:
    """k of all products whose first operand is transposed, such as a weight's gradient over a large batch.

    Where the result is small, the loop over k is nearly all the work, and its steps fill no core's vector registers.
    """
    batch, _, _, k = work.sizes[:4]
    return batch * k if work.flags[0] else 0.0


def _further(work: Work) -> float:
    """Products of a batch after the first."""
    return work.sizes[0] - 1.0


FAMILY = Family(
    name="matmul",
    ops=aten("mm addmm bmm baddbmm mv addmv dot addbmm matmul linear _addmm_activation"),
    sizes={
        "batch": "products in the call",
        "m": "rows of the result",
        "n": "columns of the result",
        "k": "products that are added up to one number of the result",
        "left": "elements of the first operand",
        "right": "elements of the second operand",
        "product": "elements of the result",
        "narrowest": "the smallest of m, n and k: every kernel is less efficient on a thin product",
    },
    flags={
        "a_transposed": "the first operand is transposed",
        "b_transposed": "the second operand is transposed",
        "row": "m is 1, which has kernels of its own",
        "column": "n is 1, which has kernels of its own",
        "ragged": "rows of the result end within a vector register: a tenth slower, however few numbers are missing",
    },
    read=_read,
    cpu_amounts={"padding_flops": _padding_flops, "rows": _rows, "depth": _depth, "further": _further},
)
