"""Traces ops that torch tests itself with, and looks each op that ran up in the table of ops.

    python op_rows.py

Prints as JSON which ops ran in each of torch's, and which of those the table says nothing of. In a process of its own,
as torch's tests set switches where they are imported.
"""

from __future__ import annotations

import itertools
import json
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from op_database import DTYPES, Op
from torch.testing._internal.common_methods_invocations import op_db

from placer.errors import PlacerError
from placer.pricing import Work, describe_step
from placer.tracing import trace_here
from placer.workload import Workload

#: Samples of each op: a second one often takes another path.
SAMPLES = 4


def works(info: Any) -> Iterator[Work]:
    """The works of an op's first samples, with their backward pass where they have one."""
    dtype = next((dtype for dtype in DTYPES if dtype in info.supported_dtypes("cpu")), None)
    if dtype is None:
        return
    learns = info.supports_autograd and dtype.is_floating_point
    for sample in itertools.islice(info.sample_inputs("cpu", dtype, requires_grad=learns), SAMPLES):
        try:
            module = Op(info.op)
            step = Workload(
                model=module,
                modules=(module,),
                args=(sample.input, sample.args, sample.kwargs),
                kwargs={},
                mode="train" if learns else "infer",
                loss=None,
                optimizer=None,
                data="device",
            )
            yield from describe_step(trace_here(step))
        except PlacerError:  # what has no kernel on the CPU
            continue


def found() -> dict[str, Any]:
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
    print(json.dumps(found()))
