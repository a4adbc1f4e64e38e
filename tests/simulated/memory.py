"""The device's memory: counted as storages come and go."""

from __future__ import annotations

import torch


class Memory:
    """Bytes in use, and the most there were; ``take`` raises torch.OutOfMemoryError beyond ``capacity``."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.used = 0
        self.peak = 0

    @property
    def free(self) -> int:
        return self.capacity - self.used

    def take(self, size: int) -> Allocation:
        if size > self.free:
            raise torch.OutOfMemoryError(
                f"sim out of memory: tried to allocate {size} bytes, {self.free} of {self.capacity} are free"
            )
        self.used += size
        self.peak = max(self.peak, self.used)
        return Allocation(self, size)


class Allocation:
    """Held by every tensor that shares one storage; the last one to go gives the memory back."""

    def __init__(self, memory: Memory, size: int) -> None:
        self._memory = memory
        self._size = size

    def __del__(self) -> None:
        self._memory.used -= self._size
