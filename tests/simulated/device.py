"""The one simulated device of the process: its clock, queue, memory and context."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from simulated.clock import Clock, RealClock
from simulated.memory import Memory
from simulated.queue import Queue
from simulated.spec import SPEC, Spec


class Device:
    """Everything a test may look at; ``contexts`` counts how often a context was created."""

    def __init__(self, spec: Spec = SPEC) -> None:
        self.spec = spec
        self.memory = Memory(spec.memory)
        self.contexts = 0
        self.initialized = False
        self._loaded: set[str] = set()
        self._queue = Queue(RealClock(), spec.queue_depth)

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
        spec = self.spec
        self.touch()
        if op not in self._loaded:
            self._loaded.add(op)
            self.clock.spend(spec.first_call)
        self.queue.launch(spec.kernel + seconds, issue=spec.issue, latency=spec.launch)

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
        """Run on another clock for a while, its queue empty at first."""
        before = self._queue
        self._queue = Queue(clock, self.spec.queue_depth)
        try:
            yield clock
        finally:
            self._queue = before


DEVICE = Device()
