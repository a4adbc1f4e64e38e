"""Replays of made-up traces of two steps: host and device as they would be, and what the clocks make of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from placer.calibration.measuring.events import RawEvent, assign
from placer.calibration.published.traces import find_steps, replay
from placer.calibration.published.traces.replay import Replay

US = 1000  # nanoseconds


class Machine:
    """A host and a device that note what they do; times in microseconds."""

    def __init__(self) -> None:
        self.now = 0
        self.free = 0
        self.events: list[RawEvent] = []

    def op(self, issue: int, kernel: int, kernels: int = 1) -> None:
        """Issue an op of some kernels, each launched at the end of its share."""
        begin = self.now
        for _ in range(kernels):
            self.now += issue // kernels
            self._launch("cudaLaunchKernel", self.now - 1, self.now)
            self._run(kernel, "kernel", self.now)
        self._note("aten::op", begin, self.now, "op")

    def wait(self) -> None:
        begin = self.now
        self.now = max(self.now, self.free) + 3
        self._launch("cudaDeviceSynchronize", begin, self.now)

    def copy(self, seconds: int) -> None:
        """Copy from pageable memory: the host waits for all work, then copies."""
        begin = self.now
        start = max(self.now, self.free) + 5
        self.now = start + seconds + 2
        self._launch("cudaMemcpyAsync", begin, self.now)
        self._run(seconds, "memcpy", start)
        self._note("aten::copy_", begin, self.now, "op")

    def think(self, seconds: int) -> None:
        self.now += seconds

    def step(self, number: int, begin: int) -> None:
        self._note(f"ProfilerStep#{number}", begin, self.now, "annotation")

    def replayed(self) -> Replay:
        found = assign(self.events)
        steps = find_steps(found)
        assert steps is not None
        return replay(found, steps)

    def _run(self, seconds: int, kind: Any, ready: int) -> None:
        start = max(self.free + 1, ready + 4)
        self.free = start + seconds
        self._note(kind, start, self.free, kind, number=len(self.events))

    def _launch(self, name: str, begin: int, end: int) -> None:
        self._note(name, begin, end, "runtime", number=len(self.events) + 1)

    def _note(self, name: str, begin: int, end: int, kind: Any, number: int = 0) -> None:
        number = number or -1 - len(self.events)
        self.events.append(RawEvent(name, begin * US, end * US, -1, 1, number, kind))


def steps(*ops: Sequence[Any], count: int = 4) -> Replay:
    """The replay of equal steps: each item is a method's name and its arguments."""
    machine = Machine()
    for number in range(count):
        begin = machine.now
        for name, *args in ops:
            getattr(machine, name)(*args)
        machine.step(number, begin)
    return machine.replayed()


def test_a_host_bound_step_lasts_as_long_as_its_host() -> None:
    found = steps(*[("op", 20, 5)] * 50, ("think", 300))
    assert found.shown == pytest.approx(1300e-6)
    assert found.ratio == pytest.approx(1.0, abs=0.01)
    assert found.host == pytest.approx(found.shown)


def test_a_device_bound_step_that_is_waited_for_lasts_as_long_as_its_device() -> None:
    found = steps(*[("op", 10, 100)] * 50, ("wait",))
    assert found.device == pytest.approx(5000e-6)
    assert found.host < 0.2 * found.shown  # the wait is no work of the host's
    assert found.ratio == pytest.approx(1.0, abs=0.01)


def test_a_mixed_step_lasts_as_long_as_its_parts() -> None:
    found = steps(*[("op", 10, 60)] * 30, ("wait",), ("think", 500), *[("op", 40, 5)] * 30, ("wait",))
    assert 0.5 < found.host / found.shown < 0.75
    assert found.ratio == pytest.approx(1.0, abs=0.02)


def test_a_copy_from_pageable_memory_waits_and_is_counted_once() -> None:
    found = steps(*[("op", 10, 100)] * 20, ("copy", 800))
    assert found.shown == pytest.approx(2840e-6, rel=0.01)
    assert found.ratio == pytest.approx(1.0, abs=0.02)


def test_an_op_of_many_kernels_runs_while_it_is_issued() -> None:
    found = steps(("op", 2000, 18, 100), ("wait",))
    assert found.shown == pytest.approx(2000e-6, rel=0.05)
    assert found.ratio == pytest.approx(1.0, abs=0.02)


def test_work_from_before_the_trace_holds_the_first_step_up() -> None:
    machine = Machine()
    machine.events.append(RawEvent("kernel", 0, 4000 * US, -1, 0, 999_999, "kernel"))
    machine.free = 4000
    for _ in range(10):
        machine.op(10, 20)
    machine.wait()
    machine.step(1, 0)
    found = machine.replayed()
    assert found.shown == pytest.approx(4200e-6, rel=0.02)
    assert found.ratio == pytest.approx(1.0, abs=0.02)


def test_a_trace_that_lacks_work_of_its_device_says_so() -> None:
    """Kernels of a graph may not be recorded: the queue stands still, and nothing shows why."""
    machine = Machine()
    for number in range(3):
        begin = machine.now
        machine.op(10, 20, 5)
        machine.free += 900  # something runs that the trace does not show
        machine.op(10, 20, 5)
        machine.wait()
        machine.step(number, begin)
    found = machine.replayed()
    assert found.starved == pytest.approx(900e-6, rel=0.05)
    assert found.ratio < 0.3


def test_without_marks_an_optimizers_updates_tell_the_steps() -> None:
    events = [RawEvent("Optimizer.step#Adam.step", start, start + 5, -1, 1, -1, "annotation") for start in (10, 40, 90)]
    found = find_steps(assign(events))
    assert found is not None
    assert found.marks == (15, 45, 95)
    assert find_steps(assign(events[:1])) is None
