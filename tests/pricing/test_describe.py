"""What describes an op call: its family, bytes, dtype and place in the step."""

from __future__ import annotations

from dataclasses import replace

import pytest
from described import feature, spec, work

from placer.pricing.describe import amounts, describe_step, different_works, feature_names, ops_inside
from placer.pricing.families import FAMILIES, family_of
from placer.pricing.step_context import CONTEXT_FLAGS, CONTEXT_SIZES
from placer.tracing.trace_data import OpCall, Trace


@pytest.mark.parametrize("op", ["aten::new_zeros", "aten::new_ones", "aten::new_full"])
def test_what_only_says_of_what_kind_the_result_is_is_not_read(op: str) -> None:
    """A small tensor made like a large one does not read the large one."""
    found = work(op, [spec(500, 32)], [spec(10)])
    assert (found.family, found.bytes) == ("elementwise", 40)
    assert found.sizes == work("aten::zeros", [], [spec(10)]).sizes


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


def test_a_step_is_described_once_and_another_made_of_it_anew() -> None:
    step = Trace((OpCall("aten::relu", (spec(8),), (spec(8),)),), "infer", (), (), (), ())
    assert describe_step(step) is describe_step(step)
    assert step == replace(step)
    larger = replace(step, calls=(OpCall("aten::relu", (spec(16),), (spec(16),)),))
    assert [found.bytes for found in (*describe_step(step), *describe_step(larger))] == [64, 128]


def test_different_works_and_their_order_give_the_step() -> None:
    ops = ("relu", "exp", "exp", "relu", "exp", "exp")
    calls = tuple(OpCall(f"aten::{name}", (spec(8),), (spec(8),)) for name in ops)
    step = Trace(calls, "infer", (), (), (), ())
    works, order = different_works(step)
    assert len({id(found) for found in works}) == len(works) < len(order)
    assert tuple(works[number] for number in order) == describe_step(step)


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


def test_what_a_family_does_not_say_is_the_usual() -> None:
    plain = work("aten::add", [spec(8), spec(8)], [spec(8)])
    assert ops_inside(plain) == 1
    product = work("aten::mm", [spec(8, 8), spec(8, 8)], [spec(8, 8)])
    assert (FAMILIES["matmul"].variant(product), FAMILIES["matmul"].evaluates(product)) == ("", False)


def test_an_operand_that_is_written_counts_also_where_the_result_is_smaller() -> None:
    assert work("aten::never_heard_of_", [spec(8, 8)], [spec(8)], in_place=True).family == "elementwise"


def test_gradients_are_recorded_around_forward_ops_alone() -> None:
    call = OpCall("aten::relu", (spec(8),), (spec(8),))
    modes = {mode: describe_step(Trace((call,), mode, (), (), (), ()))[0] for mode in ("train", "infer")}
    assert [feature(modes[mode], "recording") for mode in ("train", "infer")] == [1, 0]
