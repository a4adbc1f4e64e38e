"""The op calls of a step in order, each with its phase, its layer, the values it connects and the memory it keeps."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.storage import UntypedStorage

from placer.tracing.layers import Layers
from placer.tracing.trace_data import Connection, MemoryEvent, OpCall, Phase, TensorSpec


class Dataflow:
    """Follows values through the memory that holds them while a step is recorded."""

    def __init__(self) -> None:
        self._values: dict[int, int] = {}  # by the address of the memory's owner
        self._made = 0
        self._calls: dict[int, Connection] = {}

    def connect(self, call: int, reads: Iterable[Tensor | None], results: Iterable[Tensor | None], new: bool) -> None:
        """Call number ``call`` read and gave these tensors. The results are views of what it read unless ``new``."""
        read = tuple([self._value(_memory(t)) for t in reads if t is not None])
        given = [_memory(t) for t in results if t is not None]
        self._calls[call] = read, tuple([self._fresh(m) if new else self._value(m) for m in given])

    def values(self, tensors: Iterable[Tensor]) -> tuple[int, ...]:
        """The values that these tensors hold now."""
        return tuple([self._value(_memory(t)) for t in tensors])

    def connections(self, calls: int) -> tuple[Connection, ...]:
        """Of the first ``calls`` calls, in order; empty for a call that nobody connected."""
        return tuple([self._calls.get(number, ((), ())) for number in range(calls)])

    def _value(self, memory: int) -> int:
        found = self._values.get(memory)
        return self._fresh(memory) if found is None else found

    def _fresh(self, memory: int) -> int:
        self._made += 1
        self._values[memory] = self._made
        return self._made


def _memory(tensor: Tensor) -> int:
    """A number that tensors share that share memory. A sparse tensor has none of its own, and shares it with none."""
    try:
        return int(tensor.untyped_storage()._cdata)
    except (NotImplementedError, RuntimeError):
        return -id(tensor)


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


class CallLog:
    """Append with ``record``, move on with ``end_phase``, read with ``op_calls``."""

    def __init__(self, layers: Layers) -> None:
        self.layers = layers
        self.phase: Phase = "forward"
        #: Times that the host has waited for the device so far.
        self.syncs = 0
        self._attributed = 0
        self._calls: list[OpCall] = []
        self.liveness = Liveness(self._calls.__len__)
        self._kept: dict[int, int] = {}  # bytes by call number
        self._phase_start = 0
        #: Where values are followed: for a compiled step, and for one on two devices.
        self.dataflow: Dataflow | None = None

    def __len__(self) -> int:
        """Calls recorded so far."""
        return len(self._calls)

    def record(
        self,
        op: str,
        inputs: tuple[TensorSpec, ...],
        outputs: tuple[TensorSpec, ...],
        args: tuple[Hashable, ...],
        view: bool = False,
        in_place: bool = False,
        layer: str | None = None,
    ) -> None:
        """Append one call, in the current phase and (with ``layer`` None) the layer that is running."""
        if op == "aten::detach":
            # Autograd detaches what it saves only because ops are intercepted; a real step does not. A real detach
            # (a gradient put in its place) belongs to its autograd node, which is counted.
            return
        if layer is None:
            layer = self.layers.of_backward() if self.phase == "backward" else self.layers.current
        syncs, self._attributed = self.syncs - self._attributed, self.syncs
        self._calls.append(OpCall(op, inputs, outputs, args, self.phase, layer, view, in_place, 0, syncs))

    def connect(self, reads: Iterable[Tensor | None], results: Iterable[Tensor | None]) -> None:
        """Note which tensors the call recorded last read and gave, where values are followed."""
        if self.dataflow is not None and self._calls:
            call = self._calls[-1]
            self.dataflow.connect(len(self._calls) - 1, reads, results, new=call.in_place or not call.view)

    def connections(self) -> tuple[Connection, ...]:
        """Of every call, in order; empty where values are not followed."""
        return () if self.dataflow is None else self.dataflow.connections(len(self._calls))

    def values(self, tensors: Iterable[Tensor]) -> tuple[int, ...]:
        """The values that these tensors hold now; empty where values are not followed."""
        return () if self.dataflow is None else self.dataflow.values(tensors)

    def end_phase(self, following: Phase) -> None:
        """Note which outputs of the phase are still alive, and go on to the next phase."""
        self._kept.update(self.liveness.kept(self._phase_start, len(self._calls)))
        self._phase_start = len(self._calls)
        self.phase = following

    def rewind(self, count: int) -> None:
        """Forget all calls after the first ``count``."""
        del self._calls[count:]

    def op_calls(self) -> tuple[OpCall, ...]:
        """All recorded calls, in order."""
        for index, nbytes in self._kept.items():
            self._calls[index] = self._calls[index]._replace(kept_bytes=nbytes)
        self._kept.clear()
        return tuple(self._calls)
