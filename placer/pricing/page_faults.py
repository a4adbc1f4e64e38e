"""Page faults of a step: glibc's ``malloc``, simulated over the buffers that a trace takes and gives back.

The first write to a page that the kernel has just mapped costs a page fault, many times the write itself. The allocator
decides whether a tensor lands on such fresh pages. glibc maps large blocks anew every time and unmaps them when freed;
it keeps smaller ones in its heap, and trims the heap's end when too much of it is free. The sizes that separate these
cases grow with the largest block freed so far (``M_MMAP_THRESHOLD`` in *mallopt(3)*), so they differ between processes:
``placer.machine.malloc.state`` reads those of this process.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Mapping
from dataclasses import dataclass

from placer.machine import FIRST_THRESHOLD, LAST_THRESHOLD, HeapState
from placer.pricing import parameter_updates
from placer.tracing import MemoryEvent, Trace

PAGE = 4096
#: Bytes that the heap grows by beyond the request, and that are left of its free end when it is trimmed.
TOP_PAD = 128 << 10
#: Bytes of a buffer below which it finds room between others and decides nothing.
SMALLEST = 16 << 10
#: Bytes per block for the tensor's alignment and the allocator's own header.
HEADER = 128
#: Steps to simulate: after them the same pages are fresh every time.
STEPS = 3

#: Parameter-sized temporaries that are alive at once while one tensor is updated, by optimizer; 2 for any other.
UPDATE_BUFFERS = {"SGD": 0, "Adam": 2, "AdamW": 2, "RMSprop": 1, "Adagrad": 1, "Adadelta": 2}


@dataclass(frozen=True)
class FreshMemory:
    """Bytes of fresh pages that each call of a step is the first to write to, by call number."""

    by_call: dict[int, int]

    @property
    def total(self) -> int:
        """Bytes of fresh pages of the whole step."""
        return sum(self.by_call.values())


#: The heap of a process that has freed blocks of every size: only the largest are still mapped.
SETTLED = HeapState(LAST_THRESHOLD, 2 * LAST_THRESHOLD)


class Heap:
    """glibc's main arena and its mapped blocks. Addresses count from where the arena's free end starts at first."""

    def __init__(self, state: HeapState) -> None:
        self.threshold = state.threshold
        self.returned = 0
        self._top = 0  # where the free end of the heap begins
        self._end = 0  # where the heap ends
        self._touched = 0  # pages below are backed by memory
        self._by_size: list[tuple[int, int]] = []  # free blocks: (size, start)
        self._starts: dict[int, int] = {}  # start of a free block -> its size
        self._ends: dict[int, int] = {}  # end of a free block -> its start
        if state.free:
            # Not at the heap's end: memory freed long ago lies between other blocks.
            self._keep(-state.free - PAGE, state.free)

    @property
    def trim_threshold(self) -> int:
        return FIRST_THRESHOLD if self.threshold == FIRST_THRESHOLD else 2 * self.threshold

    def state(self) -> tuple[object, ...]:
        """Two equal states treat every following block alike."""
        return self.threshold, self._top, self._end, self._touched, tuple(self._by_size)

    def take(self, nbytes: int) -> tuple[int | None, int, int]:
        """Allocate ``nbytes``: (start, or None where mapped; size; bytes on fresh pages) of the block."""
        size = nbytes + HEADER
        best = bisect_left(self._by_size, (size, -1))
        if best < len(self._by_size):
            found, start = self._by_size[best]
            self._forget(start, found)
            if found > size:
                self._keep(start + size, found - size)
        else:
            if self._top + size > self._end:
                # Only what the heap has no room for is mapped, however large it is.
                if size >= self.threshold:
                    size = -(-size // PAGE) * PAGE
                    return None, size, size
                self._end = -(-(self._top + size + TOP_PAD) // PAGE) * PAGE
            start = self._top
            self._top += size
        fresh = max(start + size - max(start, self._touched), 0)
        self._touched = max(self._touched, start + size)
        return start, size, fresh

    def give(self, start: int | None, size: int) -> None:
        """Free a block that ``take`` gave."""
        if start is None:
            self.returned += size
            if self.threshold < size <= LAST_THRESHOLD:
                self.threshold = size
            return
        after = self._starts.get(start + size)
        if after is not None:
            self._forget(start + size, after)
            size += after
        before = self._ends.get(start)
        if before is not None:
            size += start - before
            self._forget(before, start - before)
            start = before
        if start + size != self._top:
            self._keep(start, size)
            return
        self._top = start
        if self._end - self._top > self.trim_threshold:
            end = -(-(self._top + TOP_PAD) // PAGE) * PAGE
            self.returned += max(min(self._touched, self._end) - end, 0)
            self._end = end
            self._touched = min(self._touched, end)

    def _keep(self, start: int, size: int) -> None:
        insort(self._by_size, (size, start))
        self._starts[start] = size
        self._ends[start + size] = start

    def _forget(self, start: int, size: int) -> None:
        del self._by_size[bisect_left(self._by_size, (size, start))]
        del self._starts[start]
        del self._ends[start + size]


def fresh_memory(trace: Trace, state: HeapState) -> FreshMemory:
    """The fresh memory of a step of ``trace`` that repeats; ``state`` is the heap before the first of them."""
    events = _with_updates(trace)
    heap = Heap(state)
    held: dict[int, tuple[int | None, int]] = {}
    by_call: dict[int, int] = {}
    before = None
    for _ in range(STEPS):
        for block in held.values():
            heap.give(*block)
        held.clear()
        if (now := heap.state()) == before:
            break  # this step would repeat the one before
        before = now
        by_call = {}
        for event in events:
            if event.nbytes:
                start, size, fresh = heap.take(event.nbytes)
                held[event.buffer] = (start, size)
                if fresh:
                    by_call[event.call] = by_call.get(event.call, 0) + fresh
            else:
                heap.give(*held.pop(event.buffer))
    return FreshMemory(by_call)


def fault_seconds(trace: Trace, state: HeapState | None, rates: Mapping[str, float]) -> dict[int, float]:
    """Seconds that the calls of ``trace`` spend on page faults, by call number, at the device's ``rates``.

    Empty where the state of the heap (None) or the cost of a fresh byte is unknown.
    """
    cost = rates.get("fresh_seconds_per_byte", 0.0)
    if state is None or not cost:
        return {}
    return {number: cost * fresh for number, fresh in fresh_memory(trace, state).by_call.items()}


def _with_updates(trace: Trace) -> list[MemoryEvent]:
    """The memory events of large buffers, with those that the optimizer takes to update each parameter."""
    large = {event.buffer for event in trace.memory if event.nbytes >= SMALLEST}
    events = [event for event in trace.memory if event.buffer in large]
    buffers = UPDATE_BUFFERS.get(trace.optimizer or "", 2)
    for number, call in enumerate(trace.calls):
        if parameter_updates.is_update(call) and call.inputs[0].stored_bytes >= SMALLEST:
            names = [-(number * 4 + i + 1) for i in range(buffers)]
            events += [MemoryEvent(number, name, call.inputs[0].stored_bytes) for name in names]
            events += [MemoryEvent(number + 1, name, 0) for name in names]
    return events
