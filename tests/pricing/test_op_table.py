"""The table of ops: nothing is below its physical bound, and everything in torch's own list of ops is in it."""

from __future__ import annotations

import pytest
from pricing import large_ops
from pricing.large_ops import LARGE, calls_of, compulsory_bytes

from placer.pricing import device_model
from placer.pricing.describe import describe_step
from placer.pricing.op_table import effort
from placer.profile import find_gpu
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


@pytest.mark.parametrize("gpu", ["A100", "T4", "RTX 3090", "H100"])
def test_no_gpu_of_the_catalog_prices_a_large_op_below_its_bound(gpu: str) -> None:
    """But for what L2 may hold from one op to the next. A kernel takes a microsecond at the least."""
    model, sheet = device_model(gpu), find_gpu(gpu)
    peak = 1e12 * max(sheet.float32_tflops, sheet.tensor_tf32_tflops)
    below = {}
    for name, op in LARGE.items():
        step, own = calls_of(name)
        works = describe_step(step)
        seconds = sum(model.price([works[n] for n in own])[0])
        from_memory = (compulsory_bytes(name) - 2e6 * sheet.l2_mb) / (1e9 * sheet.bandwidth_gbps)
        bound = max(op.flops / peak, from_memory, 1e-6 * op.sequence)
        if seconds < bound:
            below[name] = seconds / bound
    assert not below
