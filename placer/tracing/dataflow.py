"""Which values each call reads and writes: what a compiler sees of a step, and an op call by itself does not show."""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor

#: (values read, values written) of one call, by number. A value is what one call left in one tensor's memory; views of
#: it are the same value, and a write in place makes a new one.
Connection = tuple[tuple[int, ...], tuple[int, ...]]


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
