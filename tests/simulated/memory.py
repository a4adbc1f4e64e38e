"""The device's memory: counted as storages come and go."""

from __future__ import annotations

import torch


class Memory:
    """Bytes in use (``used``), and the most there were (``peak``).

    ``reserved`` is what the allocator holds: ``used``, and with a ``cache`` also what was freed since it was emptied.
    ``free`` is what the driver would give. ``take`` raises torch.OutOfMemoryError beyond ``capacity``.
    """

    def __init__(self, capacity: int, *, cache: bool = False) -> None:
        self.capacity = capacity
        self.used = 0
        self.peak = 0
        self.reserved = 0
        self._cache = cache

    @property
    def free(self) -> int:
        return self.capacity - self.reserved

    def take(self, size: int) -> Allocation:
        room = self.free + self.reserved - self.used  # the allocator empties its cache before it gives up
        if size > room:
            raise torch.OutOfMemoryError(
                f"sim out of memory: tried to allocate {size} bytes, {room} of {self.capacity} are free"
            )
        self.used += size
        self.peak = max(self.peak, self.used)
        self.reserved = max(self.reserved, self.used)
        return Allocation(self, size)

    def give(self, size: int) -> None:
        self.used -= size
        if not self._cache:
            self.reserved = self.used

    def empty_cache(self) -> None:
        self.reserved = self.used


class Allocation:
    """Held by every tensor that shares one storage; the last one to go gives the memory back."""

    def __init__(self, memory: Memory, size: int) -> None:
        self._memory = memory
        self._size = size

    def __del__(self) -> None:
        self._memory.give(self._size)
