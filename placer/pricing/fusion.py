"""Which calls of a step a compiler runs in one kernel, and what is left of their memory traffic.

The rules are those of PyTorch's inductor (Ansel et al., "PyTorch 2: Faster Machine Learning Through Dynamic Python
Bytecode Transformation and Graph Compilation", ASPLOS 2024): ops that compute each result from a few elements, and
reductions, are fused with what makes their operands, unless a library's product or convolution stands between them. A
kernel reads what comes from outside once, and writes what others read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from placer.pricing.work import Work
from placer.tracing import OpCall, Trace

#: Families whose ops the compiler writes kernels for. All others stay calls of a library.
FUSABLE = frozenset(("elementwise", "reduction", "softmax", "normalization", "random", "pooling", "indexing"))
#: Families whose ops read a window or a place that depends on data: what makes their operand is not computed in them.
_STARTS = frozenset(("pooling",))
#: Families whose results a backward pass does not compute anew from what the forward pass read.
_SAVED = frozenset(("random", "pooling"))
#: Calls that one kernel holds at the most (``torch._inductor.config.max_fusion_size``).
LARGEST = 64


@dataclass(frozen=True, slots=True)
class Place:
    """A call in a compiled step.

    ``kernel`` is the number of its kernel (-1: none of the compiler's), ``first`` whether it is the first call in it,
    ``traffic`` the share of its memory traffic that is left, and ``again`` whether the backward pass computes it anew.
    """

    kernel: int = -1
    first: bool = False
    traffic: float = 1.0
    again: bool = False


def places_in_kernels(trace: Trace, works: Sequence[Work], regions: Sequence[str]) -> list[Place]:
    """The place of every call. ``regions`` name the graph that each call is compiled in; "" is eager."""
    fusion = _Fusion(trace, works, regions)
    fusion.group()
    return list(fusion.places())


class _Fusion:
    def __init__(self, trace: Trace, works: Sequence[Work], regions: Sequence[str]) -> None:
        self.calls, self.flow, self.works, self.regions = trace.calls, trace.dataflow, works, regions
        self.unit = [-1] * len(self.calls)  # of a call: a kernel, or a call by itself
        self.members: dict[int, list[int]] = {}
        self.domain: dict[int, int] = {}
        self.mask: dict[int, int] = {}  # the bits that stand for a unit
        self.before: dict[int, int] = {}  # the bits of all units that a unit depends on
        self.maker: dict[int, int] = {}  # by value: the call that wrote it
        self.readers: dict[int, list[int]] = defaultdict(list)
        self.results = frozenset(trace.output_values)

    # --- grouping -----------------------------------------------------------------------------------------------------

    def group(self) -> None:
        for number, (work, (reads, writes)) in enumerate(zip(self.works, self.flow, strict=True)):
            if work.family == "view":
                continue
            for value in reads:
                self.readers[value].append(number)
            units = {self.unit[self.maker[v]] for v in reads if v in self.maker}
            self._place(number, {u for u in units if self._region(u) == self.regions[number]})
            for value in writes:
                self.maker[value] = number

    def _region(self, unit: int) -> str:
        return self.regions[self.members[unit][0]]

    def _place(self, number: int, sources: set[int]) -> None:
        size = _size(self.calls[number])
        hosts = [u for u in sorted(sources, reverse=True) if self._takes(u, number, size, sources)]
        if not hosts:
            self.unit[number] = number
            self.members[number], self.domain[number], self.mask[number] = [number], size, 1 << number
            self.before[number] = 0
            self._depend(number, sources)
            return
        host = hosts[0]
        for other in hosts[1:]:
            if self._apart(host, other) and len(self.members[host]) + len(self.members[other]) < LARGEST:
                self._merge(host, other)
                sources = sources - {other}
        self.unit[number] = host
        self.members[host].append(number)
        self.domain[host] = max(self.domain[host], size)
        self._depend(host, sources - {host})

    def _takes(self, unit: int, number: int, size: int, sources: set[int]) -> bool:
        """Whether the kernel ``unit``, which makes an operand of a call, can run the call too."""
        family = self.works[number].family
        if not self.regions[number] or family not in FUSABLE or family in _STARTS:
            return False
        if self.works[self.members[unit][0]].family not in FUSABLE or len(self.members[unit]) >= LARGEST:
            return False
        if size > self.domain[unit] and not all(self.works[m].family == "elementwise" for m in self.members[unit]):
            return False
        return not any(self.before[other] & self.mask[unit] for other in sources if other != unit)

    def _apart(self, one: int, other: int) -> bool:
        return not (self.before[one] & self.mask[other] or self.before[other] & self.mask[one])

    def _merge(self, host: int, other: int) -> None:
        for member in self.members[other]:
            self.unit[member] = host
        self.members[host] = sorted(self.members[host] + self.members.pop(other))
        self.domain[host] = max(self.domain[host], self.domain.pop(other))
        self.mask[host] |= self.mask.pop(other)
        self.before[host] |= self.before.pop(other)

    def _depend(self, unit: int, sources: set[int]) -> None:
        for source in sources:
            self.before[unit] |= self.before[source] | self.mask[source]

    # --- traffic ------------------------------------------------------------------------------------------------------

    def places(self) -> Iterator[Place]:
        read: dict[int, set[int]] = defaultdict(set)
        started: set[int] = set()
        anew = {
            self.unit[maker] for value, maker in self.maker.items()
            if self._leaves(value, maker) and not self._written(value, maker)
        }  # fmt: skip
        for number, work in enumerate(self.works):
            unit = self.unit[number]
            if unit < 0:
                yield Place(traffic=0.0 if self.regions[number] else 1.0)
            elif not self.regions[number] or work.family not in FUSABLE:
                yield Place()
            else:
                again = unit in anew and work.family not in _SAVED
                yield Place(unit, unit not in started, self._traffic(number, read[unit]), again)
                started.add(unit)

    def _traffic(self, number: int, read: set[int]) -> float:
        call, (reads, writes) = self.calls[number], self.flow[number]
        if len(reads) != len(call.inputs) or len(writes) != len(call.outputs):
            return 1.0
        left = total = 0
        for value, spec in zip(reads, call.inputs, strict=True):
            total += spec.stored_bytes
            source = self._source(value, number)
            if source is not None and source not in read:
                read.add(source)
                left += spec.stored_bytes
        for value, spec in zip(writes, call.outputs, strict=True):
            total += spec.stored_bytes
            left += spec.stored_bytes if self._written(value, number) else 0
        return left / total if total else 0.0

    def _source(self, value: int, number: int) -> int | None:
        """What stands in memory for a value that a call reads; None for one that its kernel makes.

        A value that was not written is computed anew from what its kernel read, which is as much as one value.
        """
        maker = self.maker.get(value)
        if maker is None:
            return value
        if self.unit[maker] == self.unit[number]:
            return None
        return value if self._written(value, maker) else -1 - self.unit[maker]

    def _leaves(self, value: int, maker: int) -> bool:
        """Whether calls outside its kernel read a value."""
        return any(self.unit[n] != self.unit[maker] for n in self.readers[value])

    def _written(self, value: int, maker: int) -> bool:
        """Whether a value that a kernel makes is written to memory: others read it, or it is a result.

        What only the backward pass reads again is computed anew there (AOTAutograd's partitioner), where it can be.
        """
        unit, region = self.unit[maker], self.regions[maker]
        if value in self.results:
            return True
        outside = [n for n in self.readers[value] if self.unit[n] != unit]
        if not outside:
            return not self.readers[value]
        inside = len(self.readers[value]) > len(outside)
        again = inside and region == "forward" and self.works[maker].family not in _SAVED
        return not again or any(self.regions[n] != "backward" or self.works[n].family not in FUSABLE for n in outside)


def _size(call: OpCall) -> int:
    """Elements that a kernel walks over for a call."""
    return max((t.numel for t in (*call.outputs, *call.inputs)), default=0)
