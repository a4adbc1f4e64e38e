"""Formulas give the shapes, strides and dtypes of the real CPU kernels."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from placer.tracing.operators import FORMULAS, known_outputs, read_call
from placer.tracing.trace_data import spec_of

A = torch.ops.aten
IMAGE = torch.randn(2, 6, 9, 8)
LAST = IMAGE.contiguous(memory_format=torch.channels_last)
ROWS = torch.randn(5, 7)
C = torch.rand(6)
MASK = [True, True, True]
STATS = (C, C, C, C, C)
KERNEL = (torch.randn(4, 3, 3, 2), C[:4], [2, 1], [1, 0], [1, 2], False, [0, 0], 2)
PLAIN = (None, [1], [0], [1], False, [0], 1)

FORMULA_CASES: list[tuple[Any, tuple[Any, ...]]] = [
    *[
        (A.native_batch_norm.default, (image, C, C, C, C, training, 0.1, 1e-5))
        for image in (IMAGE, LAST)
        for training in (True, False)
    ],
    *[(A.native_batch_norm_backward.default, (image, image, *STATS, True, 1e-5, MASK)) for image in (IMAGE, LAST)],
    *[(A.convolution.default, (image, *KERNEL)) for image in (IMAGE, LAST)],
    (A.convolution.default, (IMAGE[:, :, 0].contiguous(), torch.randn(4, 6, 3), *PLAIN)),
]
POINTWISE_CASES: list[tuple[Any, tuple[Any, ...]]] = [
    *[(op, (rows,)) for op in (A.relu.default, A.gelu.default) for rows in (ROWS, ROWS.t(), LAST)],
    *[
        (op, given)
        for op in (A.add.Tensor, A.div.Tensor, A.lt.Tensor, A.atan2.default)
        for given in ((ROWS, C[0]), (ROWS[:, :5], ROWS[:, :5].t()), (ROWS, torch.tensor(3)), (LAST, C[:, None, None]))
    ],
    (A.mul.Tensor, (ROWS, 2.5)),
    (A.div.Tensor, (torch.tensor([0, 1, 6]), 2)),
    (A.where.self, (ROWS > 0, ROWS, torch.tensor(0.0))),
    (A.silu_backward.default, (ROWS, ROWS.t().contiguous().t())),
    (A.elu_backward.default, (ROWS, 1.0, 1.0, 1.0, False, ROWS)),
    (A.threshold_backward.default, (ROWS, ROWS, 0)),
]


def name_of(value: Any) -> str:
    return str(value) if isinstance(value, torch._ops.OpOverload) else ""


@pytest.mark.parametrize(("func", "args"), [*FORMULA_CASES, *POINTWISE_CASES], ids=name_of)
def test_what_is_known_of_an_output_is_what_the_kernel_gives(func: Any, args: tuple[Any, ...]) -> None:
    result = func(*args)
    bare = isinstance(result, torch.Tensor)
    made = tuple(None if t is None else spec_of(t) for t in ((result,) if bare else result))
    call = read_call(func, args, {})
    assert call.info.pointwise != (call.info.base in FORMULAS)
    assert known_outputs(call) == (made, bare)
