"""The simulated devices of the process: clock, queue, memory and context of each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from simulated import profiler
from simulated.clock import Clock, Queue, RealClock
from simulated.memory import Memory
from simulated.spec import SPEC, Spec


class SimulatedDevice:
    """Everything a test may look at; ``contexts`` counts how often a context was created."""

    def __init__(self, spec: Spec = SPEC, index: int = 0, clock: Clock | None = None) -> None:
        self.index = index
        self._become(spec)
        self._queue = Queue(clock or RealClock(), spec.queue_depth)

    def _become(self, spec: Spec) -> None:
        self.spec = spec
        self.memory = Memory(spec.memory, cache=spec.cache)
        self.contexts = 0
        self.initialized = False
        self._loaded: set[str] = set()

    @property
    def clock(self) -> Clock:
        return self._queue.clock

    @property
    def queue(self) -> Queue:
        """The queue, for whoever uses the device: the first use creates its context."""
        self.touch()
        return self._queue

    def touch(self) -> None:
        if not self.initialized:
            self.initialized = True
            self.contexts += 1
            self.clock.spend(self.spec.context)

    def launch(self, seconds: float, op: str) -> None:
        """Run the kernels of an op, which have ``seconds`` of work in all."""
        spec = self.spec
        self.touch()
        if op not in self._loaded:
            self._loaded.add(op)
            self.clock.spend(spec.first_call)
        count = spec.kernels.get(op, 1)
        for _ in range(count):
            with profiler.launching(spec, op, spec.kernel + seconds / count):
                self.queue.launch(spec.kernel + seconds / count, issue=spec.issue, latency=spec.launch)

    def synchronize(self) -> None:
        self.queue.wait()
        self.clock.spend(self.spec.sync)

    def forget_context(self) -> None:
        """As in a new process."""
        self.initialized = False
        self.contexts = 0
        self._loaded.clear()

    @contextmanager
    def on(self, clock: Clock) -> Iterator[Clock]:
        """Run on another clock for a while, all devices of the process alike, their queues empty at first."""
        before = [(device, device._queue) for device in DEVICES]
        for device in DEVICES:
            device._queue = Queue(clock, device.spec.queue_depth)
        try:
            yield clock
        finally:
            for device, queue in before:
                device._queue = queue


#: The first device. It is the same object for as long as the process lives.
DEVICE = SimulatedDevice()
DEVICES: list[SimulatedDevice] = [DEVICE]
#: The index of the device that "sim" means.
current = [0]


@contextmanager
def machine_with(*specs: Spec) -> Iterator[Sequence[SimulatedDevice]]:
    """Have these devices for a while instead of the usual one: sim, sim:1 and so on, as in a new process."""
    usual = DEVICE.spec
    assemble(specs)
    try:
        yield DEVICES
    finally:
        assemble([usual])
        current[0] = 0


def assemble(specs: Sequence[Spec]) -> None:
    """Make these the devices of the process."""
    profiler.forget_sessions()
    DEVICE._become(specs[0])
    DEVICE._queue = Queue(DEVICE.clock, specs[0].queue_depth)
    DEVICES[1:] = [SimulatedDevice(spec, index, DEVICE.clock) for index, spec in enumerate(specs[1:], 1)]


def device_of(name: Any = None) -> SimulatedDevice:
    """The device that torch names so: an index, "sim", "sim:1" or a torch.device; None is the current one.

    Raises RuntimeError, as torch does, for one that is not there.
    """
    index = name if isinstance(name, int) else None if name is None else torch.device(name).index
    index = current[0] if index is None else index
    if not 0 <= index < len(DEVICES):
        raise RuntimeError(f"invalid device ordinal: {name}, there are {len(DEVICES)} devices sim")
    return DEVICES[index]
