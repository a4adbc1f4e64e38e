"""There is a typical op of every kind of the table, and it runs an op of that kind."""

from __future__ import annotations

import pytest
import torch

from placer.calibration.benchmarks.probe import Apply
from placer.calibration.lab.typical_ops import LEAST_SCALED, parsed, scaled, typical_ops
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


@pytest.mark.parametrize("typical", ["torch.sinh(x)", "torch.sinh(x) of", "torch.sinh(x of 4x4", "x of fourxfour"])
def test_a_cell_that_says_no_call_is_refused(typical: str) -> None:
    with pytest.raises((ValueError, SyntaxError)):
        parsed(typical)


def test_small_dimensions_keep_their_size_where_an_op_grows() -> None:
    least = LEAST_SCALED
    assert scaled(((least, least - 1), (2,)), 3) == ((3 * least, least - 1), (2,))
