"""Traces ops that torch tests itself with, each as a step: with its backward pass where it has one.

    python op_database.py trace PART PARTS
    python op_database.py rows

Prints as JSON how many ops a part has, how many were traced as a user's step is, and what was said of the others; or
which ops ran in each of torch's, and which of those the table of ops says nothing of. In a process of its own, as
torch's tests set switches where they are imported.
"""

from __future__ import annotations

import itertools
import json
import sys
import warnings
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db

from placer.calibration.benchmarks.probe import Apply
from placer.errors import PlacerError
from placer.pricing import Work, describe_step
from placer.tracing import trace, trace_here
from placer.workload import Workload

DTYPES = (torch.float32, torch.int64, torch.complex64, torch.bool)
#: Samples of each op: a second one often takes another path.
SAMPLES = 4


def applied(op: Any, x: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return op(x, *args, **kwargs)


def steps(info: Any) -> Iterator[Workload]:
    """A step of the op on each of its first samples."""
    dtype = next((dtype for dtype in DTYPES if dtype in info.supported_dtypes("cpu")), None)
    if dtype is None:
        return
    learns = info.supports_autograd and dtype.is_floating_point
    op = Apply(partial(applied, info.op))
    for sample in itertools.islice(info.sample_inputs("cpu", dtype, requires_grad=learns), SAMPLES):
        given = (sample.input, sample.args, sample.kwargs)
        yield Workload(op, (op,), given, mode="train" if learns else "infer")


def runs(step: Workload) -> bool:
    """Whether the CPU has a kernel for it."""
    try:
        step.model(*step.args)
    except (RuntimeError, AssertionError):
        return False
    return True


def refusals(part: int, parts: int) -> dict[str, Any]:
    ops = op_db[part::parts]
    refused: dict[str, str] = {}
    traced = 0
    for info in ops:
        step = next(filter(runs, steps(info)), None)
        if step is None:
            continue
        try:
            trace(step)
            traced += 1
        except PlacerError as error:
            refused[f"{info.name} {info.variant_test_name}"] = str(error)
    return {"ops": len(ops), "traced": traced, "refused": refused}


def works(info: Any) -> Iterator[Work]:
    for step in steps(info):
        try:
            yield from describe_step(trace_here(step))
        except PlacerError:  # what has no kernel on the CPU
            continue


def rows() -> dict[str, Any]:
    ran: dict[str, list[str]] = {}
    unpriced: dict[str, str] = {}
    for info in op_db:
        name, done = f"{info.name} {info.variant_test_name}".strip(), list(works(info))
        ran[name] = sorted({work.op for work in done})
        unpriced |= {work.op: name for work in done if work.effort is None}
    return {"ran": ran, "unpriced": unpriced}


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    what, *numbers = sys.argv[1:]
    print(json.dumps(rows() if what == "rows" else refusals(*map(int, numbers))))
