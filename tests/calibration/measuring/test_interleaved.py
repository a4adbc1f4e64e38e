from __future__ import annotations

from collections.abc import Callable

import pytest

from placer.calibration.measuring.step import Measurement, measure_interleaved
from placer.errors import TimerError


class Work:
    """A step that takes what ``seconds`` says, on a clock shared with others; it notes each call in a common log."""

    def __init__(self, name: str, shared: Shared, seconds: Callable[[int], float]) -> None:
        self.name, self.shared, self.seconds = name, shared, seconds
        self.calls = 0

    def prepare(self) -> None:
        self.shared.log.append(f"prepare {self.name}")

    def __call__(self) -> None:
        self.calls += 1
        self.shared.log.append(self.name)
        self.shared.now += self.seconds(self.calls)


class Shared:
    def __init__(self) -> None:
        self.now = 0.0
        self.log: list[str] = []

    def clock(self) -> float:
        return self.now


def test_rounds_take_turns() -> None:
    shared = Shared()
    steps = [Work("a", shared, lambda _: 1.0), Work("b", shared, lambda _: 2.0)]
    first, second = measure_interleaved(steps, clock=shared.clock, rounds=5, seconds=1.0)
    assert first == Measurement(1.0, 1.0, 1.0, 3, 1.0, anyhow=1.0)
    assert second == Measurement(2.0, 2.0, 2.0, 3, 1.0, anyhow=2.0)
    # A warm-up and an estimate of each, then three rounds of one step each, in turns.
    turns = ["prepare a", "a", "prepare b", "b"]
    assert shared.log == ["prepare a", "a", "a", "prepare b", "b", "b", *turns * 3]


def test_time_is_spread_over_the_rounds() -> None:
    shared = Shared()
    step = Work("a", shared, lambda _: 0.01)
    (result,) = measure_interleaved([step], clock=shared.clock, rounds=5, seconds=1.01)
    assert isinstance(result, Measurement)
    assert result.count == 100  # 5 rounds of 20 steps
    assert step.calls == 2 + 5 * (1 + 20)  # each round begins with an untimed step
    assert result.median == pytest.approx(0.01)


def test_drift_shows_in_repeatability_not_in_one_cell_alone() -> None:
    shared = Shared()
    slow = [1.0, 1.0, 1.0, 1.0, 2.0, 2.0]
    steps = [Work(name, shared, lambda call: slow[call - 1]) for name in ("a", "b")]
    results = measure_interleaved(steps, clock=shared.clock, rounds=4, seconds=4.5)
    assert results == [Measurement(1.5, 1.0, 2.0, 4, 2.0, anyhow=1.5)] * 2


def test_a_step_that_raises_keeps_its_error_and_spares_the_others() -> None:
    shared = Shared()

    def fails(call: int) -> float:
        if call > 3:
            raise MemoryError("no room")
        return 1.0

    broken, fine = measure_interleaved(
        [Work("a", shared, fails), Work("b", shared, lambda _: 1.0)], clock=shared.clock, rounds=3, seconds=1.0
    )
    assert isinstance(broken, MemoryError)
    assert isinstance(fine, Measurement)


def test_a_clock_that_stands_still_is_an_error_of_the_cell() -> None:
    (result,) = measure_interleaved([Work("a", Shared(), lambda _: 1.0)], clock=lambda: 3.0)
    assert isinstance(result, TimerError)


def test_an_accelerator_is_waited_for_once_per_block() -> None:
    shared = Shared()
    queued = [0.0]

    class Issue(Work):
        def __call__(self) -> None:
            super().__call__()
            queued[0] += 0.0009

    def synchronize() -> None:
        shared.log.append("wait")
        shared.now += queued[0]
        queued[0] = 0.0

    step = Issue("a", shared, lambda _: 0.0001)
    (result,) = measure_interleaved([step], synchronize=synchronize, clock=shared.clock, rounds=3, seconds=0.03)
    assert isinstance(result, Measurement)
    assert result.median == pytest.approx(0.001)
    assert result.count == 30
    waited = "".join("w" if line == "wait" else "a" for line in shared.log if line != "prepare a")
    assert "waawwaaw" in waited  # blocks of two steps: 2 ms
