"""There is a typical op of every kind of the table, and it runs an op of that kind."""

from __future__ import annotations

import pytest
import torch

from placer.calibration.benchmarks.probe import Apply
from placer.calibration.lab.typical_ops import typical_ops
from placer.pricing import describe_step
from placer.pricing.ops import COUNTED, QUANTIZED, table
from placer.tracing import trace_here
from placer.workload import make_workload

#: Kinds without one: what moves or only waits, and what families count.
WITHOUT = {"", "waits", COUNTED, QUANTIZED}


def test_every_kind_has_one_typical_op_but_what_only_waits_and_what_families_count() -> None:
    assert sorted(op.kind for op in table() if op.typical) == sorted({op.kind for op in table()} - WITHOUT)
    assert set(typical_ops()) == {op.kind for op in table()} - WITHOUT


@pytest.mark.parametrize("kind", typical_ops())
def test_a_typical_op_runs_one_of_its_kind(kind: str) -> None:
    function, shapes = typical_ops()[kind]
    operands = tuple(torch.randn(shape) for shape in shapes)
    found = describe_step(trace_here(make_workload(Apply(function), batch=operands, mode="infer", data="device")))
    assert kind in {work.effort.kind for work in found if work.effort is not None}
