"""How the cores of a CPU share an op's loops, and sizes that fill no whole register."""

from __future__ import annotations

import pytest
from described import feature, traced
from torch import nn

from placer.pricing.describe import Context, amounts, describe
from placer.pricing.families.family import FINE_GRAIN, GRAIN, padded
from placer.pricing.families.loops import GELU_GRAIN
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

RAGGED: dict[str, tuple[nn.Module, tuple[int, ...], bool]] = {
    "rows of whole registers": (nn.Linear(5, 48), (3, 5), False),
    "rows that end within one": (nn.Linear(5, 47), (3, 5), True),
    "a single column": (nn.Linear(5, 1), (3, 5), False),
    "channels in blocks": (nn.Conv2d(16, 32, 3), (2, 16, 8, 8), False),
    "channels of the image not": (nn.Conv2d(3, 32, 3), (2, 3, 8, 8), True),
    "channels of the result not": (nn.Conv1d(16, 20, 3), (2, 16, 8), True),
    "a grey image": (nn.Conv2d(1, 16, 3), (2, 1, 8, 8), False),
    "channels of all groups together": (nn.Conv2d(32, 32, 3, groups=32), (2, 32, 8, 8), False),
    "the same transposed": (nn.ConvTranspose2d(32, 32, 3, groups=4), (2, 32, 8, 8), False),
}


@pytest.mark.parametrize("name", RAGGED)
def test_what_fills_no_vector_register_is_ragged(name: str) -> None:
    model, shape, expected = RAGGED[name]
    linear = isinstance(model, nn.Linear)
    forward = traced(model, "aten::addmm" if linear else "aten::convolution", shape, mode="infer")
    assert feature(forward, "ragged") == expected
    if not linear:
        assert feature(traced(model, "aten::convolution_backward", shape), "ragged") == expected


def test_a_dimension_is_rounded_up_to_whole_registers() -> None:
    assert [padded(size) for size in (0, 1, 16, 20, 32)] == [1.0, 16.0, 1.0, 1.6, 1.0]
