"""Every op that torch tests itself with is traced as a step: with its backward pass where it has one."""

from __future__ import annotations

import itertools
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn
from torch.testing._internal.common_methods_invocations import op_db

from placer.errors import PlacerError
from placer.nest import tensors
from placer.tracing import trace
from placer.workload import Workload, make_workload

PARTS = 6
DTYPES = (torch.float32, torch.int64, torch.complex64, torch.bool)


class Op(nn.Module):
    def __init__(self, op: Any) -> None:
        super().__init__()
        self.op = op

    def forward(self, x: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self.op(x, *args, **kwargs)


def step(info: Any) -> Workload | None:
    """A step of the op on the first of its samples that runs here; None where none does."""
    dtype = next((dtype for dtype in DTYPES if dtype in info.supported_dtypes("cpu")), None)
    if dtype is None:
        return None
    learns = info.supports_autograd and dtype.is_floating_point
    for sample in itertools.islice(info.sample_inputs("cpu", dtype, requires_grad=learns), 3):
        given = (sample.input, sample.args, sample.kwargs)
        try:
            info.op(sample.input, *sample.args, **sample.kwargs)
        except (RuntimeError, AssertionError):  # what has no kernel on the CPU
            continue
        if any(True for _ in tensors(given)):
            return make_workload(Op(info.op), example=given, mode=None if learns else "infer")
        return make_workload(partial(Op(info.op), *given), example=(), mode="infer")
    return None


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.soak) for part in range(1, PARTS))])
def test_no_op_of_torch_s_own_database_is_refused(part: int) -> None:
    refused: dict[str, str] = {}
    traced = 0
    for info in op_db[part::PARTS]:
        workload = step(info)
        if workload is None:
            continue
        try:
            trace(workload)
            traced += 1
        except PlacerError as error:
            refused[f"{info.name} {info.variant_test_name}"] = str(error)
    assert refused == {}
    assert traced > 0.9 * len(op_db[part::PARTS])
