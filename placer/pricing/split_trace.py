"""A step on two devices: which calls run on the CPU, which on the accelerator, and which tensors cross between them.

The submodules that the user names run on the CPU, forward, backward and update; everything else runs on the
accelerator. What the trace tells of the values that calls read and write says what crosses.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from placer.pricing.families import parameter_updates
from placer.tracing import MemoryEvent, OpCall, Trace
from placer.workload import CpuPart


@dataclass(frozen=True)
class Crossing:
    """A tensor of ``nbytes`` is copied before call number ``call``: to the CPU, or to the accelerator.

    It is alive there until call number ``last`` has read it.
    """

    call: int
    to_cpu: bool
    nbytes: int
    last: int


@dataclass(frozen=True)
class SplitTrace:
    """A traced step on two devices: where each call runs, what crosses, and the step of each device by itself."""

    whole: Trace
    on_cpu: tuple[bool, ...]
    crossings: tuple[Crossing, ...]
    cpu: Trace
    accelerator: Trace


def split_trace(trace: Trace, part: CpuPart, data: str) -> SplitTrace:
    """Divide ``trace``, whose values were followed; ``data`` says where its batches are."""
    units = [part.unit(call.layer) for call in trace.calls]
    on_cpu = [unit is not None for unit in units]
    flow = _Flow(trace)
    flow.prepare(on_cpu)
    crossings = tuple(flow.crossings(on_cpu, units, on_host=data != "device"))
    read_by_cpu = flow.readers_of_batch(on_cpu, on_cpu=True)
    read_elsewhere = flow.readers_of_batch(on_cpu, on_cpu=False)
    copied = [n for n in range(len(trace.batch)) if n in read_elsewhere or n not in read_by_cpu]
    made_on_cpu = flow.made_on_cpu(on_cpu)
    returned = [n for n, value in enumerate(trace.output_values) if value not in made_on_cpu]

    def device(cpu: bool) -> Trace:
        numbers = [n for n, there in enumerate(on_cpu) if there is cpu]
        calls = tuple(trace.calls[n] for n in numbers)
        parameters = [n for n in range(len(trace.parameters)) if (n in part.parameters) is cpu]
        buffers = [n for n in range(len(trace.buffers)) if (n in part.buffers) is cpu]
        forward = _share(calls, trace.calls, ("forward", "loss"))
        backward = _share(calls, trace.calls, ("backward",))
        syncs = min(sum(call.syncs for call, there in zip(trace.calls, on_cpu, strict=True) if there), trace.syncs)
        return replace(
            trace,
            calls=calls,
            parameters=tuple(trace.parameters[n] for n in parameters),
            buffers=tuple(trace.buffers[n] for n in buffers),
            batch=trace.batch if cpu else tuple(trace.batch[n] for n in copied),
            outputs=() if cpu else tuple(trace.outputs[n] for n in returned),
            peak_activation_bytes=_peak(trace, on_cpu, crossings, cpu=cpu),
            optimizer_state_bytes=round(trace.optimizer_state_bytes * _updated_share(trace, calls, parameters)),
            sparse_gradients=tuple(i for i, n in enumerate(parameters) if n in trace.sparse_gradients),
            module_calls=round(forward * trace.module_calls),
            python_calls=round(forward * trace.python_calls),
            loop_calls=0 if cpu else trace.loop_calls,
            evicted_calls=forward * trace.evicted_calls,
            autograd_nodes=round(backward * trace.autograd_nodes),
            syncs=syncs if cpu else trace.syncs - syncs,
            memory=_events(trace, numbers, on_cpu),
            dataflow=(),
            others={},
        )

    return SplitTrace(trace, tuple(on_cpu), crossings, cpu=device(True), accelerator=device(False))


class _Flow:
    """Which call makes each value of a step, and which calls read it."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.batch = {value: number for number, value in enumerate(trace.batch_values)}
        self.maker: dict[int, int] = {}
        #: (call, bytes) of every call that works on a value; a view reads nothing.
        self.readers: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for number, (call, (reads, writes)) in enumerate(zip(trace.calls, trace.dataflow, strict=True)):
            if call.view and not call.in_place:
                continue
            sizes = [spec.stored_bytes for spec in call.inputs]
            sizes += [max(sizes, default=0)] * (len(reads) - len(sizes))
            for value, size in zip(reads, sizes, strict=False):
                self.readers[value].append((number, size))
            for value in writes:
                if value not in reads:
                    self.maker[value] = number

    def prepare(self, on_cpu: list[bool]) -> None:
        """Calls on what the host has, whose results only the CPU reads, run on the CPU: they prepare its inputs."""
        from_host = set(self.batch)
        candidates: list[tuple[int, tuple[int, ...]]] = []
        for number, (call, (reads, writes)) in enumerate(zip(self.trace.calls, self.trace.dataflow, strict=True)):
            if call.phase == "forward" and not on_cpu[number] and writes and from_host.issuperset(reads):
                from_host.update(writes)
                candidates.append((number, writes))
        for number, writes in reversed(candidates):
            found = [reader for value in writes for reader, _ in self.readers[value] if reader != number]
            on_cpu[number] = bool(found) and all(on_cpu[reader] for reader in found)

    def crossings(self, on_cpu: Sequence[bool], units: Sequence[str | None], *, on_host: bool) -> list[Crossing]:
        """What is copied, in order.

        A tensor that the accelerator reads leaves the CPU once, as soon as the CPU is done with it; one that the CPU
        reads is copied before each unit's first use of it, as it enters the unit. An input of the batch that is not
        ``on_host`` is on the accelerator.
        """
        found: list[Crossing] = []
        for value, readers in self.readers.items():
            maker = self.maker.get(value)
            if maker is None and (value not in self.batch or on_host):
                continue  # a weight, which is where it is read, or a batch
            if maker is not None and on_cpu[maker]:
                away = [(n, size) for n, size in readers if not on_cpu[n]]
                if away:
                    first = away[0][0]
                    here = [n for n, _ in readers if on_cpu[n] and n < first]
                    size, last = max(size for _, size in away), away[-1][0]
                    found.append(Crossing(max([maker, *here]) + 1, False, size, last))
                continue
            by_unit: dict[str | None, list[tuple[int, int]]] = defaultdict(list)
            for n, size in readers:
                if on_cpu[n]:
                    by_unit[units[n]].append((n, size))
            found += [Crossing(uses[0][0], True, uses[0][1], uses[-1][0]) for uses in by_unit.values()]
        return sorted(found, key=lambda crossing: crossing.call)

    def readers_of_batch(self, there: Sequence[bool], *, on_cpu: bool) -> set[int]:
        """The numbers of the batch's tensors that one of the devices reads."""
        return {n for value, n in self.batch.items() if any(there[r] is on_cpu for r, _ in self.readers[value])}

    def made_on_cpu(self, on_cpu: Sequence[bool]) -> set[int]:
        return {value for value, number in self.maker.items() if on_cpu[number]}


def _share(calls: Sequence[OpCall], every: Sequence[OpCall], phases: tuple[str, ...]) -> float:
    """The share of the step's calls of these phases that are among ``calls``."""
    return sum(c.phase in phases for c in calls) / max(sum(c.phase in phases for c in every), 1)


def _updated_share(trace: Trace, calls: Iterable[OpCall], parameters: Iterable[int]) -> float:
    """The share of the updated weights' bytes that ``calls`` update, which are those of these parameters."""

    def updated(found: Iterable[OpCall], numbers: Iterable[int]) -> int:
        dense = sum(call.inputs[0].stored_bytes for call in found if parameter_updates.is_update(call))
        return dense + sum(trace.parameters[n].stored_bytes for n in numbers if n in trace.sparse_gradients)

    return updated(calls, parameters) / max(updated(trace.calls, range(len(trace.parameters))), 1)


def _events(trace: Trace, numbers: Sequence[int], on_cpu: Sequence[bool]) -> tuple[MemoryEvent, ...]:
    """The memory events of the buffers that calls ``numbers`` make, by their number among these."""
    place = {number: position for position, number in enumerate(numbers)}
    before = [0]
    for number in range(len(on_cpu)):
        before.append(before[-1] + (number in place))
    mine: set[int] = set()
    events: list[MemoryEvent] = []
    for event in trace.memory:
        if event.nbytes and event.call in place:
            mine.add(event.buffer)
            events.append(event._replace(call=place[event.call]))
        elif not event.nbytes and event.buffer in mine:
            events.append(event._replace(call=before[min(event.call, len(on_cpu))]))
    return tuple(events)


def _peak(trace: Trace, on_cpu: Sequence[bool], crossings: Iterable[Crossing], *, cpu: bool) -> int:
    """Most bytes of activations and gradients that are alive on a device at once, copies from the other included.

    A weight's gradient counts while it is made; from then on it is counted with the weight.
    """
    freed = {event.buffer: event.call for event in trace.memory if not event.nbytes}
    changes: list[tuple[int, int]] = []  # (call, bytes more), where those freed before a call come first
    for event in trace.memory:
        if not event.nbytes or on_cpu[min(event.call, len(on_cpu) - 1)] is not cpu:
            continue
        kept = event.call + 1 if trace.calls[event.call].phase == "backward" else len(on_cpu)
        changes += [(event.call, event.nbytes), (freed.get(event.buffer, kept), -event.nbytes)]
    for crossing in crossings:
        if crossing.to_cpu is cpu:
            changes += [(crossing.call, crossing.nbytes), (crossing.last + 1, -crossing.nbytes)]
    peak = now = 0
    for _, nbytes in sorted(changes):
        now += nbytes
        peak = max(peak, now)
    return peak
