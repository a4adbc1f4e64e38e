"""What describes an op call: its family, bytes, dtype and place in the step."""

from __future__ import annotations

import pytest
from described import feature, spec, traced, work
from torch import nn

from placer.pricing.describe import amounts, describe_step, feature_names
from placer.pricing.families import FAMILIES, family_of
from placer.pricing.step_context import CONTEXT_FLAGS, CONTEXT_SIZES
from placer.tracing.trace_data import OpCall, Trace

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


@pytest.mark.parametrize("op", ["aten::new_zeros", "aten::new_ones", "aten::new_full"])
def test_what_only_says_of_what_kind_the_result_is_is_not_read(op: str) -> None:
    """A small tensor made like a large one was taken for a reading of the large one."""
    found = work(op, [spec(500, 32)], [spec(10)])
    assert (found.family, found.bytes) == ("elementwise", 40)
    assert found.sizes == work("aten::zeros", [], [spec(10)]).sizes


def test_reading_one_number_moves_nothing() -> None:
    found = work("aten::_local_scalar_dense", [spec()], [])
    assert (found.family, found.flops, found.bytes) == ("view", 0, 0)


def test_reductions_know_which_dimension_survives() -> None:
    outer = work("aten::sum", [spec(16, 8)], [spec(8)], (0,))
    inner = work("aten::sum", [spec(16, 8)], [spec(16)], (1,))
    assert (outer.flops, outer.bytes) == (128, 4 * (128 + 8))
    assert (feature(outer, "inner_survives"), feature(inner, "inner_survives")) == (1, 0)


def test_a_view_moves_nothing() -> None:
    found = work("aten::transpose", [spec(64, 64)], [spec(64, 64, stride=(1, 64))], 0, 1, view=True)
    assert (found.family, found.flops, found.bytes) == ("view", 0, 0)


def test_an_update_in_place_is_no_view() -> None:
    assert work("aten::add_", [spec(64), spec(64)], [spec(64)], view=True, in_place=True).bytes > 0


@pytest.mark.parametrize("op", ["aten::never_heard_of", "mylib::conv", "aten::linalg_lu_solve"])
def test_an_unregistered_op_is_never_free(op: str) -> None:
    for inputs, outputs in (([spec(8, 8)], [spec(8, 8)]), ([spec(8, 8)], [spec()]), ([], [spec(64)])):
        found = work(op, inputs, outputs)
        assert found.flops > 0
        assert found.bytes >= 4 * (64 if inputs else 1)


def test_what_an_unregistered_op_looks_like() -> None:
    assert work("aten::never_heard_of", [spec(8, 8)], [spec(8, 8)]).family == "elementwise"
    assert work("aten::never_heard_of", [spec(8, 8)], [spec(8)]).family == "other"
    assert work("mylib::anything", [spec(8, 8)], [spec(8, 8)]).family == "other"
    assert family_of("optimizer::Anything") == "optimizer"


def test_an_overload_with_too_few_operands_falls_back() -> None:
    found = work("aten::convolution", [spec(8, 8)], [spec(8, 8)])
    assert found.family == "other"
    assert found.bytes == 4 * 128


def test_one_is_not_true() -> None:
    image, weight, out = spec(1, 4, 8, 8), spec(4, 4, 1, 1), spec(1, 4, 8, 8)
    not_transposed = work("aten::convolution", [image, weight], [out], (1, 1), (0, 0), (1, 1), False, (0, 0), 1)
    assert feature(not_transposed, "transposed") == 0
    normalized = [spec(4, 8), spec(8), spec(8)]
    one = work("aten::native_batch_norm", normalized, [spec(4, 8), spec(8), spec(8)], 1, 0.1, 1e-5)
    true = work("aten::native_batch_norm", normalized, [spec(4, 8), spec(8), spec(8)], True, 0.1, 1e-5)
    assert (feature(one, "training"), feature(true, "training")) == (0, 1)
    heads = [spec(2, 4, 8, 16)] * 3
    assert feature(work("aten::scaled_dot_product_attention", heads, heads[:1], 1, False, 0.0, False), "causal") == 0


def test_the_place_in_the_step_is_a_feature() -> None:
    kept = work("aten::relu", [spec(8)], [spec(8)], kept_bytes=32)
    backward = work("aten::relu", [spec(8)], [spec(8)], phase="backward")
    assert (feature(kept, "kept"), feature(kept, "recording"), feature(kept, "footprint")) == (1, 1, 1000)
    assert (feature(backward, "kept"), feature(backward, "recording")) == (0, 0)


def test_the_dtype_is_the_results() -> None:
    assert work("aten::mm", [spec(2, 2, dtype="bfloat16")] * 2, [spec(2, 2, dtype="bfloat16")]).dtype == "bfloat16"
    assert work("aten::embedding", [spec(9, 2), spec(3, dtype="int64")], [spec(3, 2)]).dtype == "float32"


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_names_all_its_features(family: str) -> None:
    names = feature_names(family)
    assert len(set(names)) == len(names)
    start = len(FAMILIES[family].sizes)
    assert names[start : start + len(CONTEXT_SIZES)] == CONTEXT_SIZES
    assert names[-len(CONTEXT_FLAGS) :] == CONTEXT_FLAGS


def test_an_op_knows_what_went_through_the_caches_before_it() -> None:
    large, small = spec(1 << 20), spec(4)
    calls = [
        OpCall("aten::relu", (small,), (small,)),
        OpCall("aten::relu", (large,), (large,)),
        OpCall("aten::view", (large,), (large,), view=True),
        OpCall("aten::relu", (small,), (small,)),
    ]
    works = describe_step(Trace(tuple(calls), "infer", (), (), (), ()))
    before = [feature(w, "previous") for w in works]
    # Steps follow each other; a view moves nothing, and so leaves what was before it.
    assert before == [32, 32, 8 << 20, 8 << 20]
    assert works[0] is not works[3]


def test_equal_work_in_equal_places_is_one_object() -> None:
    calls = tuple(OpCall("aten::relu", (spec(8),), (spec(8),)) for _ in range(5))
    first, *rest = describe_step(Trace(calls, "infer", (), (), (), ()))
    assert len({id(w) for w in rest}) == 1
    assert first != rest[0]


def test_rows_that_are_walked_one_by_one() -> None:
    by_row = work("aten::mul", [spec(6, 4), spec(6, 1)], [spec(6, 4)])
    assert (feature(by_row, "inner"), amounts(by_row)["restarts"]) == (4, 5)
    assert (feature(by_row, "block"), amounts(by_row)["blocks"]) == (24, 0)
    whole = work("aten::mul", [spec(6, 4), spec(6, 4)], [spec(6, 4)])
    assert (feature(whole, "inner"), amounts(whole)["restarts"]) == (24, 0)
    apart = work("aten::clone", [spec(6, 4, stride=(1, 6))], [spec(6, 4)])
    assert (feature(apart, "strided"), amounts(apart)["strided"]) == (1, 24)
    patches = work("aten::clone", [spec(5, 6, 3, 2, stride=(7, 1, 7, 1))], [spec(5, 6, 3, 2)])
    assert (feature(patches, "block"), amounts(patches)["blocks"]) == (6, 29)


def test_python_evicts_the_code_of_forward_ops_alone() -> None:
    x = spec(4)
    calls = OpCall("aten::relu", (x,), (x,)), OpCall("aten::tanh", (x,), (x,), phase="backward")
    works = describe_step(Trace(calls, "train", (), (), (), (), python_calls=40, evicted_calls=10.0))
    assert [feature(found, "evicted") for found in works] == [0.25, 0]
    assert amounts(works[0])["evicted"] == 0.25


def test_an_op_in_a_loop_has_a_shorter_reuse_distance_than_one_that_stands_alone() -> None:
    small, large = spec(4), spec(1 << 20)
    calls = [OpCall("aten::relu", (small,), (small,))] * 3 + [OpCall("aten::exp", (large,), (large,))]
    works = describe_step(Trace(tuple(calls), "infer", (), (), (), ()))
    assert [feature(found, "first") for found in works] == [1, 0, 0, 1]
    assert [feature(found, "reuse_distance") for found in works] == [8 << 20, 0, 0, 128]
    assert [amounts(found)["reuse_distance"] for found in works] == [pytest.approx(0.9, abs=1e-6), 0, 0, 0]
