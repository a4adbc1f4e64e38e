"""The table of ops: nothing is below its physical bound, and everything in torch's own list of ops is in it."""

from __future__ import annotations

import pytest
from priced import device
from pricing import large_ops
from pricing.large_ops import LARGE, calls_of, compulsory_bytes

from placer.pricing import Context, CostModel, describe, device_model, op_lines, table_seconds
from placer.pricing.describe import describe_step
from placer.pricing.floors import STARTING
from placer.pricing.op_table import effort, op_cycles
from placer.pricing.prediction import SIGMA
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


def test_every_op_of_the_table_has_cycles_unless_its_family_counts_them() -> None:
    named = {name for lines in op_lines().values() for names in lines for name in names}
    assert set(op_cycles()) == named


ALONE = Context(0, recording=False)


def test_a_cpu_takes_the_cycles_of_the_table_for_an_op_that_nobody_sampled() -> None:
    work = describe(call("aten::kthvalue", (1000, 1000)), ALONE)
    fit = device()
    assert work.effort is not None
    start = fit.rates["dispatch_seconds"]
    expected = start + work.effort.cycles * start / STARTING
    assert CostModel(fit).price_works([work]) == ([pytest.approx(expected)], [SIGMA["physics"]], ["physics"])
    assert table_seconds(work, device()) == pytest.approx(expected)


def test_an_op_that_is_in_no_table_is_priced_by_its_bytes_within_a_factor_of_three() -> None:
    work = describe(call("mine::op", (1000, 1000)), ALONE)
    (seconds,), (sigma,), _ = CostModel(device()).price_works([work])
    assert seconds == pytest.approx(1e-6 + 8e6 / 1e10)
    assert sigma == SIGMA["guess"]
