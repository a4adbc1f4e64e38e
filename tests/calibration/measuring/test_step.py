"""Steps are timed in turns, every one of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from placer.calibration.measuring.step import Measurement, measure_interleaved
from placer.errors import TimerError


class Machine:
    """A clock that stands still between what takes time on it."""

    now = 0.0

    def clock(self) -> float:
        return self.now


class Work:
    """A step that takes what ``seconds`` says of its n-th call, on a clock shared with others; notes it in a log."""

    def __init__(self, name: str, machine: Machine, log: list[str], seconds: Callable[[int], float]) -> None:
        self.name, self.machine, self.log, self.seconds, self.calls = name, machine, log, seconds, 0

    def prepare(self) -> None:
        self.log.append(f"prepare {self.name}")

    def __call__(self) -> None:
        self.calls += 1
        self.log.append(self.name)
        self.machine.now += self.seconds(self.calls)


Interleaved = Callable[..., tuple[list[Measurement | Exception], list[str]]]


@pytest.fixture
def interleaved() -> Interleaved:
    """Measures steps that take what functions say; gives the results, and the order in which they ran."""

    def measured(*seconds: Callable[[int], float], **how: float) -> tuple[list[Measurement | Exception], list[str]]:
        machine, log = Machine(), list[str]()
        steps = [Work(name, machine, log, some) for name, some in zip("abc", seconds, strict=False)]
        return measure_interleaved(steps, clock=machine.clock, **how), log  # type: ignore[arg-type]

    return measured


def test_time_is_spread_over_the_rounds(interleaved: Interleaved) -> None:
    (result,), log = interleaved(lambda _: 0.01, rounds=5, seconds=1.01)
    assert isinstance(result, Measurement)
    assert (result.count, result.median) == (100, pytest.approx(0.01))  # 5 rounds of 20 steps
    assert log.count("a") == 2 + 5 * (1 + 20)  # each round begins with an untimed step


def test_a_step_that_raises_keeps_its_error_and_spares_the_others(interleaved: Interleaved) -> None:
    def fails(call: int) -> float:
        if call > 3:
            raise MemoryError("no room")
        return 1.0

    (broken, fine, still), _ = interleaved(fails, lambda _: 1.0, lambda _: 0.0, rounds=3, seconds=1.0)
    assert isinstance(broken, MemoryError)
    assert isinstance(fine, Measurement)
    assert isinstance(still, TimerError)  # a clock that stands still is an error of the cell


def test_an_accelerator_is_waited_for_once_per_block() -> None:
    machine, log, queued = Machine(), list[str](), [0.0]

    class Issue(Work):
        def __call__(self) -> None:
            super().__call__()
            queued[0] += 0.0009

    def synchronize() -> None:
        log.append("w")
        machine.now += queued[0]
        queued[0] = 0.0

    step = Issue("a", machine, log, lambda _: 0.0001)
    (result,) = measure_interleaved([step], synchronize=synchronize, clock=machine.clock, rounds=3, seconds=0.03)
    assert isinstance(result, Measurement)
    assert (result.median, result.count) == (pytest.approx(0.001), 30)
    assert "waawaaw" in "".join(log).replace("prepare a", "")  # blocks of two steps: 2 ms
