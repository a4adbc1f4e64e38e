"""An accelerator's clock is kept up, and one that is low is noticed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from placer.calibration.measuring import clocks
from placer.calibration.measuring.clocks import IDLE, POWER_LIMIT, WARM, ClockWatch


class Time:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def busy(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds of each time that the device was kept busy."""
    found: list[float] = []
    monkeypatch.setattr(clocks, "keep_busy", lambda device, seconds, clock: found.append(seconds))
    return found


def test_a_device_is_warmed_up_as_long_as_it_idled_and_not_for_ever(busy: list[float]) -> None:
    time = Time()
    watch = ClockWatch("cuda", time)
    for idle in (0.001, 0.05, 10.0):
        time.now += idle
        watch.warm()
    assert busy == [pytest.approx(0.05), WARM]
    time.now += 3.0
    watch.worked()
    watch.warm()
    assert len(busy) == 2


def readings(*some: tuple[float, int]) -> Iterator[dict[str, float]]:
    return ({"sm_mhz": clock, "throttle": float(bits)} for clock, bits in some)


def test_a_clock_far_below_the_usual_one_is_slow_unless_the_power_limit_or_idling_explains_it() -> None:
    usual = [(1980.0, 0)] * 6
    seen = readings(*usual, (345.0, 0), (1500.0, POWER_LIMIT), (345.0, IDLE), (1900.0, 0))
    watch = ClockWatch("cuda", Time(), lambda: next(seen))
    assert [watch.look()[1] for _ in range(10)] == [False] * 6 + [True, False, False, False]


def test_what_was_noted_right_after_the_work_is_looked_at_once() -> None:
    seen = readings((1980.0, 0), (345.0, 1))
    watch = ClockWatch("cuda", Time(), lambda: next(seen))
    watch.note()
    assert [watch.look()[0]["sm_mhz"] for _ in range(2)] == [1980.0, 345.0]


def test_what_is_known_of_a_clock_is_returned() -> None:
    watch = ClockWatch("cuda", Time(), lambda: {"sm_mhz": 1980.0, "power_watts": 310.0})
    assert watch.look() == ({"sm_mhz": 1980.0, "power_watts": 310.0}, False)


@pytest.mark.parametrize("known", [None, {}, {"power_watts": 3.0}])
def test_a_clock_that_nobody_knows_is_never_slow(known: dict[str, float] | None) -> None:
    watch = ClockWatch("cuda", Time(), lambda: known)
    assert [watch.look() for _ in range(9)] == [(known or {}, False)] * 9
    assert ClockWatch("sim", Time()).look() == ({}, False)


def test_keeping_busy_takes_the_time_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    time = Time()

    def wait() -> None:
        time.now += 0.004

    monkeypatch.setattr(clocks, "synchronizer", lambda device: wait)
    monkeypatch.setattr(clocks, "ROWS", 4)
    clocks.keep_busy("cpu", 0.01, time)
    assert time.now == pytest.approx(0.012)
