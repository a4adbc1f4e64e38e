"""Factorisations, solvers, determinants, eigenvalues and distances."""

from __future__ import annotations

import math

from placer.pricing.families.family import Family, Features, aten
from placer.pricing.work import Work
from placer.tracing import OpCall


def _read(call: OpCall) -> Features:
    """FLOPs: 2 x batch x rows x columns x inner. For a square matrix that is its cube, up to a constant of each op."""
    if "dist" in call.op:
        backward = call.op.endswith("_backward")
        a, b = call.inputs[1:3] if backward else call.inputs[:2]
        batch, rows, columns, inner = math.prod(a.shape[:-2]), a.shape[-2], b.shape[-2], a.shape[-1]
    else:
        matrix = max((t for t in call.inputs if len(t.shape) > 1), key=lambda t: t.numel)
        batch, (rows, columns) = math.prod(matrix.shape[:-2]), matrix.shape[-2:]
        inner = min(rows, columns)
    return Features(2.0 * batch * rows * columns * inner, (batch, rows, columns, inner))


def _squares(work: Work) -> float:
    """Elements of all matrices."""
    batch, rows, columns = work.sizes[:3]
    return batch * rows * columns


def _matrices(work: Work) -> float:
    """Matrices of the batch, which are factorised one after the other."""
    return work.sizes[0]


FAMILY = Family(
    name="linear_algebra",
    ops=aten(
        "_linalg_solve_ex linalg_inv_ex linalg_cholesky_ex _linalg_det _linalg_slogdet linalg_solve_triangular "
        "triangular_solve _linalg_eigh linalg_eig linalg_eigvals linalg_qr _linalg_svd linalg_matrix_exp linalg_lu "
        "linalg_lu_factor_ex linalg_lu_solve linalg_ldl_factor_ex linalg_lstsq linalg_householder_product "
        "cholesky_inverse cholesky_solve _cdist_forward _cdist_backward _euclidean_dist"
    ),
    sizes={
        "batch": "matrices",
        "rows": "rows of a matrix; of distances, vectors of the first set",
        "columns": "columns of a matrix; of distances, vectors of the second set",
        "inner": "the shorter side of a matrix; of distances, elements of a vector",
    },
    read=_read,
    amounts={"squares": _squares, "matrices": _matrices},
)
