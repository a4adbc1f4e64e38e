"""What of the framework's own work is counted, and when its code counts as gone from the caches."""

from __future__ import annotations

import re
from typing import Any

import pytest

from placer.pricing.framework import (
    BACKWARD,
    DISTANCES,
    FORWARD,
    LEARNT,
    MANY_OPS,
    SCALES,
    UPDATE,
    distance_shares,
    framework_counts,
    framework_seconds,
)
from placer.tracing.trace_data import OpCall, TensorSpec, Trace

#: Counts by a reuse distance in seconds.
REUSE = re.compile(r"_reuse_distance_\d+(us|ms)$")
SPEC = TensorSpec((1024,), (1,), "float32")
PHASES: tuple[Any, ...] = ("forward", "forward", "loss", "backward", "optimizer")


def trained(**totals: Any) -> Trace:
    names = {"optimizer": "optimizer::Adam"}
    calls = tuple(OpCall(names.get(phase, "aten::relu"), (SPEC,), (), phase=phase) for phase in PHASES)
    return Trace(calls, "train", (), (), (), (), **totals)


def test_what_the_framework_is_counted_by() -> None:
    trace = trained(python_calls=14, evicted_calls=2.5, autograd_nodes=6)
    counts = framework_counts(trace, [0.0, 1e-3, 0.0, 0.0, 0.0])
    after = {name: counts.pop(name) for name in list(counts) if REUSE.search(name)}
    assert not any(after.values())  # one op of this name follows another
    assert counts == {
        "step": 1, "training_step": 1, "forward_op": 3, "op_reuse_distance_100_ops": pytest.approx(0.15),
        "backward_op": 1, "autograd_node": 6, "cold_node": 6 / 4, "python_call": 14,
        "call_reuse_distance_100_ops": pytest.approx(0.7), "evicted_call": 2.5, "update": 1, "updated_tensor": 1,
    }  # fmt: skip


def test_ops_of_all_phases_make_a_step_of_many() -> None:
    def counted(forward: int, backward: int) -> dict[str, float]:
        phases: tuple[Any, ...] = ("forward",) * forward + ("backward",) * backward
        calls = tuple(OpCall("aten::relu", (SPEC,), (), phase=phase) for phase in phases)
        return framework_counts(Trace(calls, "train", (), (), (), (), python_calls=10), [0.0] * len(calls))

    few, alone, many = counted(10, 0), counted(MANY_OPS, 0), counted(10, MANY_OPS)
    assert few["op_reuse_distance_100_ops"] == pytest.approx(10 * 10 / MANY_OPS)
    assert many["op_reuse_distance_100_ops"] == many["forward_op"] == 10
    assert alone["call_reuse_distance_100_ops"] == many["call_reuse_distance_100_ops"] == 10
    assert counted(10, 2 * MANY_OPS)["op_reuse_distance_100_ops"] == 10


def test_every_count_belongs_to_one_phase() -> None:
    counts = framework_counts(trained(), [0.0] * len(PHASES))
    assert sorted((*FORWARD, *BACKWARD, *UPDATE)) == sorted(counts)
    assert (*FORWARD, *BACKWARD, *UPDATE) == LEARNT


def test_an_inference_has_neither_backward_nor_update() -> None:
    trace = Trace((OpCall("aten::relu", (), ()),) * 3, "infer", (), (), (), (), python_calls=9)
    counts = framework_counts(trace, [1.0] * 3)
    recorded = [f"recorded_op_reuse_distance_{scale}" for scale in SCALES]
    assert not any(counts[name] for name in (*BACKWARD, *UPDATE, *recorded))


def test_code_that_ran_just_now_is_not_cold() -> None:
    trace = Trace((OpCall("aten::relu", (), ()),) * 3, "infer", (), (), (), (), python_calls=9)
    counts = framework_counts(trace, [0.0] * 3)
    assert not any(count for name, count in counts.items() if REUSE.search(name))


def test_code_is_evicted_by_what_runs_between() -> None:
    """Steps follow each other: what ran once waits for all the others, what runs in a row waits for nothing."""
    # Half of what empties the second cache, and all of what empties the first.
    between = (DISTANCES[1] * DISTANCES[2]) ** 0.5
    once, row, other = distance_shares(["a", "b", "b", "b", "c"], [0.0, 0.0, 0.0, 0.0, between])[::2]
    assert once == pytest.approx((1.0, 0.5, 0.0))
    assert row == (0.0,) * len(SCALES)
    assert other == row  # its own time evicts nothing of it
    assert distance_shares(["a", "b"], [0.0, 1.0]) == [(1.0,) * len(SCALES), (0.0,) * len(SCALES)]
    assert distance_shares([], []) == []


def test_functions_are_as_far_away_as_the_ops_they_stand_around() -> None:
    calls = tuple(OpCall(f"aten::{name}", (), ()) for name in ("relu", "exp"))
    trace = Trace(calls, "train", (), (), (), (), python_calls=10)
    counts = framework_counts(trace, [1.0, 0.0])
    for scale in SCALES:
        assert [counts[f"{what}_reuse_distance_{scale}"] for what in ("op", "recorded_op", "call")] == [1.0, 1.0, 5.0]


def test_each_answer_is_counted_for_the_seconds_that_are_asked_about() -> None:
    trace = trained(python_calls=14)
    first, other = framework_counts(trace, [1e-3] * 5), framework_counts(trace, [0.0] * 5)
    far = "op_reuse_distance_50us"
    assert first[far] > other[far] == 0.0
    again = framework_counts(trace, [1e-3] * 5)
    assert again == first
    again.clear()  # the caller's own
    assert framework_counts(trace, [1e-3] * 5) == first


def test_another_thread_may_ask_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    class Forgetful(dict[Any, Any]):
        def __setitem__(self, key: Any, value: Any) -> None:
            """What the other thread that clears it leaves."""

    kept = Forgetful()
    monkeypatch.setattr("placer.pricing.framework._last_counts", lambda _: kept)
    assert framework_counts(trained(python_calls=14), [1e-3] * 5)["python_call"] == 14.0


def test_what_is_counted_is_paid_for() -> None:
    counts = {"python_call": 14.0, "autograd_node": 6.0}
    assert framework_seconds(counts, {"python_call": 1e-6, "autograd_node": 1e-7, "host/x": 1.0}) == pytest.approx(
        14.6e-6
    )
