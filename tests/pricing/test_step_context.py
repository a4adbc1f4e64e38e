"""Where ops stand in their step, counted by hand."""

from __future__ import annotations

from placer.pricing.step_context import Context, Place, octave, places
from placer.tracing.trace_data import OpCall, TensorSpec, Trace

KB, MB = 1 << 10, 1 << 20


def reuse_bytes(*ops: tuple[str, float]) -> list[float]:
    return [place.reuse_bytes for place in places(ops)]


def test_an_op_that_repeats_finds_its_code_where_it_left_it() -> None:
    assert reuse_bytes(("norm", 4 * KB), ("norm", 4 * KB), ("norm", 4 * KB))[1:] == [0.0, 0.0]


def test_what_others_moved_in_between_evicts_an_ops_code() -> None:
    ops = [("relu", 4 * KB), ("mm", MB), ("exp", MB), ("relu", 4 * KB)]
    assert reuse_bytes(*ops)[-1] == 2 * MB


def test_its_own_operands_are_not_counted() -> None:
    assert reuse_bytes(("relu", MB), ("exp", 4 * KB), ("relu", MB))[-1] == 4 * KB


def test_steps_follow_each_other() -> None:
    # The first mm of a step comes after all that followed the last one of the step before.
    ops = [("relu", 4 * KB), ("mm", 8 * KB), ("exp", MB)]
    assert reuse_bytes(*ops) == [octave(MB + 8 * KB), octave(MB + 4 * KB), octave(12 * KB)]


def test_a_view_moves_nothing_and_is_still_an_op() -> None:
    assert reuse_bytes(("view", 0.0), ("mm", MB), ("view", 0.0), ("view", 0.0)) == [0.0, 0.0, MB, 0.0]
    assert places([("view", 0.0)]) == [Place(0.0, 0.0, first=True)]


def test_only_the_first_of_a_name_is_first_and_views_do_not_hide_what_came_before_them() -> None:
    found = places([("mm", MB), ("view", 0.0), ("mm", MB), ("exp", KB)])
    assert [place.first for place in found] == [True, True, False, True]
    assert [place.previous_bytes for place in found] == [KB, MB, MB, MB]


def test_calls_that_differ_in_less_than_an_octave_stand_in_one_place() -> None:
    assert octave(1000.0) == octave(1100.0) == 1024.0
    assert octave(0.0) == octave(0.5) == 0.0


def test_a_context_knows_the_step() -> None:
    x = TensorSpec((4,), (1,), "float32")
    calls = tuple(OpCall(op, (x,), (x,)) for op in ("aten::relu", "aten::exp", "aten::relu"))
    whole = Context.of(Trace(calls, "train", (), (), (), (), peak_activation_bytes=64))
    assert (whole.footprint_bytes, whole.kinds, whole.recording, whole.updates) == (64, 2, True, 1)
    assert whole.sizes == (64.0, 2.0, 0.0, 0.0)


def test_a_context_of_a_training_step_counts_its_updates_and_what_was_evicted() -> None:
    x = TensorSpec((4,), (1,), "float32")
    calls = tuple(OpCall("optimizer::SGD", (x,), (), phase="optimizer") for _ in range(3))
    found = Context.of(Trace(calls, "infer", (), (), (), (), python_calls=8, evicted_calls=2.0))
    assert (found.updates, found.evicted, found.recording) == (3, 0.25, False)
    assert Context.of(Trace((), "infer", (), (), (), (), evicted_calls=2.0)).evicted == 1.0
    assert Context.of(Trace((), "infer", (), (), (), ())).kinds == 1
