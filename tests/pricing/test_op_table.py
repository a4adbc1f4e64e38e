"""The table of ops: nothing is below its physical bound, and everything in torch's own list of ops is in it."""

from __future__ import annotations

import pytest
from pricing import large_ops
from pricing.large_ops import LARGE

from placer.pricing.describe import describe_step
from placer.pricing.op_table import effort
from placer.tracing import OpCall, TensorSpec


@pytest.mark.parametrize("name", LARGE)
def test_no_large_op_does_less_than_its_bound(name: str) -> None:
    step, own = large_ops.calls_of(name)
    works = describe_step(step)
    done = [found for number in own if (found := works[number].effort) is not None]
    assert sum(d.flops for d in done) >= LARGE[name].flops
    assert sum(d.bytes for d in done) >= large_ops.compulsory_bytes(name)
    assert sum(d.kernels for d in done) >= LARGE[name].sequence


def call(op: str, *shapes: tuple[int, ...]) -> OpCall:
    specs = tuple(TensorSpec(shape, tuple(1 for _ in shape), "float32") for shape in shapes)
    return OpCall(op, specs, specs[:1])


def test_an_op_that_is_not_in_the_table_says_so() -> None:
    assert effort(call("aten::no_such_op", (4,))) is None
    assert effort(call("mine::relu_of_my_own", (4,))) is None


def test_an_op_in_place_is_the_same_op() -> None:
    assert effort(call("aten::relu_", (4,)), 4.0, 32.0) == effort(call("aten::relu", (4,)), 4.0, 32.0)
