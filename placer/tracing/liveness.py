"""Bytes alive during the step: a weak reference per storage tells when its memory is allocated and freed."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.storage import UntypedStorage

from placer.tracing.trace_data import MemoryEvent


class _Tracked(weakref.ref):  # type: ignore[type-arg]
    __slots__ = ("buffer", "call", "nbytes")

    call: int
    nbytes: int
    buffer: int

    def __new__(
        cls, storage: UntypedStorage, callback: Callable[[Any], None], call: int, nbytes: int, buffer: int
    ) -> _Tracked:
        self: _Tracked = weakref.ref.__new__(cls, storage, callback)
        self.call = call
        self.nbytes = nbytes
        self.buffer = buffer
        return self

    def __init__(
        self, storage: UntypedStorage, callback: Callable[[Any], None], call: int, nbytes: int, buffer: int
    ) -> None:
        super().__init__(storage, callback)  # type: ignore[call-arg]


class Liveness:
    """Current, peak and all bytes of the storages made during the step.

    A storage keeps its Python object as long as it lives, so a weak reference to that object follows the memory.
    """

    def __init__(self, position: Callable[[], int]) -> None:
        """``position`` gives the number of calls recorded so far."""
        self.current = 0
        self.peak = 0
        self.made = 0  # bytes so far, those of dead storages too
        self.events: list[MemoryEvent] = []
        self._position = position
        self._buffers = 0
        self._live: dict[int, _Tracked] = {}  # by id of the reference

    def _freed(self, reference: Any) -> None:
        if self._live.pop(id(reference), None) is not None:
            self.current -= reference.nbytes
            self.events.append(MemoryEvent(self._position(), reference.buffer, 0))

    def track(self, tensor: Tensor, call: int, nbytes: int) -> None:
        """Count a fresh output of call number ``call`` until its storage dies."""
        if nbytes == 0:
            return
        self._buffers += 1
        self.events.append(MemoryEvent(call, self._buffers, nbytes))
        reference = _Tracked(tensor.untyped_storage(), self._freed, call, nbytes, self._buffers)
        self._live[id(reference)] = reference
        self.current += nbytes
        self.made += nbytes
        if self.current > self.peak:
            self.peak = self.current

    def forget(self, tensor: Tensor) -> None:
        """Stop counting the storage of ``tensor``: it is a parameter's gradient, counted elsewhere."""
        if tensor.layout is not torch.strided:  # a sparse gradient has no storage of its own
            return
        storage = tensor.untyped_storage()
        for reference in weakref.getweakrefs(storage):
            if isinstance(reference, _Tracked) and self._live.pop(id(reference), None) is not None:
                self.current -= reference.nbytes

    def kept(self, first: int, last: int) -> dict[int, int]:
        """Bytes still alive by call, for the calls ``first <= call < last``."""
        result: dict[int, int] = {}
        for reference in self._live.values():
            if first <= reference.call < last:
                result[reference.call] = result.get(reference.call, 0) + reference.nbytes
        return result
