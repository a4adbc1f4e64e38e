"""Steps are timed in turns, every one of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from placer.calibration.measuring.step import Measurement, measure_interleaved
from placer.errors import TimerError


@dataclass
class Machine:
    """A clock that stands still between what takes time on it."""

    now: float = 0.0

    def clock(self) -> float:
        return self.now


@dataclass
class Work:
    """A step that takes what ``seconds`` says of its n-th call."""

    machine: Machine
    seconds: Callable[[int], float]
    calls: int = 0

    def prepare(self) -> None:
        """Nothing: it has no mode."""

    def __call__(self) -> None:
        self.calls += 1
        self.machine.now += self.seconds(self.calls)


def test_a_step_that_raises_keeps_its_error_and_spares_the_others() -> None:
    def fails(call: int) -> float:
        if call > 3:
            raise MemoryError("no room")
        return 1.0

    machine = Machine()
    steps: list[Any] = [Work(machine, fails), Work(machine, lambda _: 1.0), Work(machine, lambda _: 0.0)]
    broken, fine, still = measure_interleaved(steps, clock=machine.clock, rounds=3, seconds=1.0)
    assert isinstance(broken, MemoryError)
    assert isinstance(fine, Measurement)
    assert fine.median == pytest.approx(1.0)
    assert isinstance(still, TimerError)  # a clock that stands still is an error of the cell
