"""How loops are shared among cores, and what one of them does."""

from __future__ import annotations

import pytest

from placer.pricing.describe import amounts, describe
from placer.pricing.families.elementwise import GELU_GRAIN
from placer.pricing.families.sharing import FINE_GRAIN, GRAIN
from placer.pricing.step_context import Context
from placer.pricing.work import Work
from placer.tracing import dense
from placer.tracing.trace_data import OpCall, TensorSpec

ALONE = Context(footprint_bytes=0, recording=False)


def spec(*shape: int) -> TensorSpec:
    return dense(shape, "float32")


def elementwise(op: str, numel: int) -> Work:
    return describe(OpCall(f"aten::{op}", (spec(numel),), (spec(numel),)), ALONE)


def cores(work: Work, threads: int) -> float:
    """How many cores take part."""
    return work.bytes / amounts(work, threads)["core_bytes"]


@pytest.mark.parametrize(
    ("op", "grain"), [("relu", GRAIN), ("mish", GRAIN), ("exp", FINE_GRAIN), ("tanh", FINE_GRAIN), ("gelu", GELU_GRAIN)]
)
def test_a_loop_below_the_grain_of_its_kernel_stays_on_one_core(op: str, grain: int) -> None:
    assert cores(elementwise(op, grain), 8) == 1
    assert amounts(elementwise(op, grain), 8)["core_shared"] == 0
    assert cores(elementwise(op, grain + 1), 2) == 2
    assert amounts(elementwise(op, grain + 1), 2)["core_shared"] == 1
    assert cores(elementwise(op, 10**7), 8) == 8
    assert cores(elementwise(op, 10**7), 1) == 1


def test_work_is_shared_evenly_among_as_many_cores_as_there_are_grains() -> None:
    found = amounts(elementwise("relu", 3 * GRAIN), 8)
    assert found["core_flops"] == GRAIN
    assert found["core_bytes"] == 8 * GRAIN


def test_a_function_that_works_in_place_is_shared_like_one_that_does_not() -> None:
    call = OpCall("aten::exp_", (spec(4096),), (spec(4096),), in_place=True)
    assert cores(describe(call, ALONE), 2) == 2


def test_normalizations_share_rows_or_channels() -> None:
    rows = describe(OpCall("aten::native_layer_norm", (spec(3, 500), spec(500)), (spec(3, 500),)), ALONE)
    channels = describe(OpCall("aten::native_batch_norm", (spec(64, 2, 9), spec(2)), (spec(64, 2, 9),)), ALONE)
    assert (cores(rows, 8), cores(channels, 8)) == (3, 2)


@pytest.mark.parametrize(("batch", "shared"), [(256, 1), (257, 2), (1024, 4)])
def test_the_gates_of_one_time_step_are_shared_and_products_are_not(batch: int, shared: int) -> None:
    sequence, weights = spec(30, batch, 12), (spec(384, 12), spec(384, 128))
    work = describe(OpCall("aten::gru", (sequence, *weights), (spec(30, batch, 128),), args=(30,)), ALONE)
    found = amounts(work, 4)
    assert found["gated"] == 30 * batch * 128
    assert found["core_gated"] == found["gated"] / shared
    assert found["core_shared"] == (30 if shared > 1 else 0)  # called in once a time step
    assert "core_flops" not in found


def test_profiles_of_before_find_the_amounts_they_were_fitted_to() -> None:
    found = amounts(elementwise("relu", 4 * GRAIN), 2)
    assert (found["chunk_flops"], found["chunk_bytes"]) == (GRAIN, 8 * GRAIN)
