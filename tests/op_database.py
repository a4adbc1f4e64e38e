"""Traces ops that torch tests itself with, each as a step: with its backward pass where it has one.

    python op_database.py PART PARTS

Prints how many there are in the part, how many were traced, and what was said of the others, as JSON. In a process of
its own, as torch's tests set switches where they are imported.
"""

from __future__ import annotations

import itertools
import json
import sys
import warnings
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.testing._internal.common_methods_invocations import op_db

from placer.errors import PlacerError
from placer.nest import tensors
from placer.tracing import trace
from placer.workload import Workload, make_workload

DTYPES = (torch.float32, torch.int64, torch.complex64, torch.bool)


class Op(nn.Module):
    """An op of the database as a layer."""

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
            return make_workload(Op(info.op), batch=given, mode=None if learns else "infer")
        return make_workload(partial(Op(info.op), *given), batch=(), mode="infer")
    return None


def refusals(part: int, parts: int) -> dict[str, Any]:
    ops = op_db[part::parts]
    refused: dict[str, str] = {}
    traced = 0
    for info in ops:
        workload = step(info)
        if workload is None:
            continue
        try:
            trace(workload)
            traced += 1
        except PlacerError as error:
            refused[f"{info.name} {info.variant_test_name}"] = str(error)
    return {"ops": len(ops), "traced": traced, "refused": refused}


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    print(json.dumps(refusals(int(sys.argv[1]), int(sys.argv[2]))))
