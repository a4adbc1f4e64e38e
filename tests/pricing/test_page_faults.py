"""glibc's heap, simulated: which blocks land on fresh pages, and what is given back to the system."""

from __future__ import annotations

import random

import pytest

from placer.pricing.page_faults import (
    FIRST_THRESHOLD,
    LAST_THRESHOLD,
    PAGE,
    SETTLED,
    STEPS,
    Heap,
    HeapState,
    _with_updates,
    fresh_memory,
)
from placer.tracing.trace_data import MemoryEvent, OpCall, TensorSpec, Trace

MIB = 1 << 20


def step(*events: tuple[int, int, int], optimizer: str | None = None, calls: tuple[OpCall, ...] = ()) -> Trace:
    memory = tuple(MemoryEvent(*event) for event in events)
    return Trace(calls, "train", (), (), (), (), optimizer=optimizer, memory=memory)


def test_large_blocks_are_mapped_and_small_ones_come_from_the_heap() -> None:
    heap = Heap(HeapState())
    start, size, fresh = heap.take(FIRST_THRESHOLD)
    assert start is None
    assert fresh == size >= FIRST_THRESHOLD
    start, size, fresh = heap.take(FIRST_THRESHOLD // 2)
    assert start == 0
    assert fresh == size < FIRST_THRESHOLD


def test_freed_heap_memory_is_used_again_without_a_fault() -> None:
    heap = Heap(HeapState())
    start, size, _ = heap.take(40_000)
    heap.give(start, size)
    again, _, fresh = heap.take(30_000)
    assert (again, fresh) == (start, 0)


def test_adjacent_blocks_merge_when_freed() -> None:
    heap = Heap(HeapState())
    blocks = [heap.take(30_000) for _ in range(3)]
    keeper = heap.take(1_000)  # without it the heap's end would swallow them
    for start, size, _ in (blocks[0], blocks[2], blocks[1]):
        heap.give(start, size)
    start, _, fresh = heap.take(80_000)
    assert (start, fresh) == (blocks[0][0], 0)
    assert keeper[0] == 3 * blocks[0][1]


def test_freeing_a_mapped_block_raises_the_threshold_up_to_a_limit() -> None:
    heap = Heap(HeapState())
    start, size, _ = heap.take(MIB)
    heap.give(start, size)
    assert heap.threshold == size
    assert heap.returned == size
    assert heap.take(MIB // 2)[0] == 0  # it is not mapped any more
    start, size, _ = heap.take(LAST_THRESHOLD + MIB)
    heap.give(start, size)
    assert heap.threshold < LAST_THRESHOLD


def test_the_end_of_the_heap_is_cut_off_when_too_much_of_it_is_free() -> None:
    heap = Heap(HeapState(threshold=MIB))
    blocks = [heap.take(MIB - PAGE) for _ in range(4)]
    for start, size, _ in reversed(blocks):
        heap.give(start, size)
    assert heap.returned > 0
    assert heap.take(MIB - PAGE)[2] > 0  # its pages have to come back


def test_what_the_heap_holds_ready_is_not_fresh() -> None:
    assert Heap(HeapState(FIRST_THRESHOLD, free=8 * MIB)).take(4 * MIB)[2] == 0
    assert Heap(SETTLED).take(LAST_THRESHOLD - PAGE)[2] == 0


def test_a_step_in_a_young_process_faults_where_a_settled_one_does_not() -> None:
    # Two blocks of 8 MiB alive at once, every step.
    trace = step((0, 1, 8 * MIB), (1, 2, 8 * MIB), (2, 1, 0), (2, 2, 0))
    young, settled = fresh_memory(trace, HeapState()), fresh_memory(trace, SETTLED)
    assert young.total >= 8 * MIB
    assert set(young.by_call) <= {0, 1}
    assert settled.total == 0


def test_blocks_beyond_the_limit_are_fresh_every_time() -> None:
    trace = step((0, 1, 100 * MIB), (1, 1, 0))
    assert fresh_memory(trace, SETTLED).total >= 100 * MIB


def test_gradients_live_until_the_next_step() -> None:
    trace = step((0, 1, 100 * MIB))
    assert fresh_memory(trace, SETTLED).total >= 100 * MIB


def test_updates_take_memory_of_their_own() -> None:
    parameter = TensorSpec((30 * MIB // 4,), (1,), "float32")
    calls = tuple(OpCall(f"optimizer::{name}", (parameter,), (), phase="optimizer") for name in ("Adam", "Adam"))
    assert fresh_memory(step(optimizer="Adam", calls=calls), HeapState()).total > 0
    assert fresh_memory(step(optimizer="SGD", calls=calls), HeapState()).total == 0


def test_what_an_update_takes_is_told_from_what_the_step_takes() -> None:
    large, small = TensorSpec((MIB,), (1,), "float32"), TensorSpec((1,), (1,), "float32")
    calls = tuple(OpCall("optimizer::Adam", (spec, small), (), phase="optimizer") for spec in (large, small, large))
    found = _with_updates(step((0, 0, MIB), (0, 1, MIB), (1, 2, 100), (2, 0, 0), optimizer="Adam", calls=calls))
    own, updates = found[:3], found[3:]
    assert [(event.call, event.buffer, event.nbytes) for event in own] == [(0, 0, MIB), (0, 1, MIB), (2, 0, 0)]
    assert [(event.call, event.nbytes) for event in updates] == [
        (0, 4 * MIB), (0, 4 * MIB), (1, 0), (1, 0), (2, 4 * MIB), (2, 4 * MIB), (3, 0), (3, 0),
    ]  # fmt: skip
    names = [event.buffer for event in updates if event.nbytes]
    assert len(set(names)) == 4
    assert max(names) < 0


@pytest.mark.parametrize("state", [HeapState(), SETTLED, HeapState(MIB, 3 * MIB)])
def test_a_step_that_repeats_the_last_one_need_not_be_played(state: HeapState, monkeypatch: pytest.MonkeyPatch) -> None:
    draw, played = random.Random(0), []
    events: list[tuple[int, int, int]] = []
    for call in range(60):
        events.append((call, call, draw.randrange(1 << 10, 4 * MIB)))
        if call % 3:
            held = [buffer for _, buffer, nbytes in events if nbytes and buffer not in freed(events)]
            events.append((call, draw.choice(held), 0))
    found = fresh_memory(step(*events), state)
    monkeypatch.setattr(Heap, "state", lambda _: (played.append(1), object())[1])  # no state is ever met again
    assert fresh_memory(step(*events), state) == found
    assert len(played) == STEPS


def freed(events: list[tuple[int, int, int]]) -> set[int]:
    return {buffer for _, buffer, nbytes in events if not nbytes}
