"""What is timed at another clock than an accelerator's usual one is told from the rest."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from placer.calibration.measuring import clocks
from placer.calibration.measuring.clocks import IDLE, POWER_LIMIT, WARM, ClockWatch


class Machine:
    """A clock that stands still between what takes time on it."""

    now = 0.0

    def clock(self) -> float:
        return self.now


def test_a_device_is_warmed_up_as_long_as_it_idled_and_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    machine, busy = Machine(), list[float]()
    monkeypatch.setattr(clocks, "keep_busy", lambda device, seconds, clock: busy.append(seconds))
    watch = ClockWatch("cuda", machine.clock, lambda: None)
    for idle in (0.001, 0.05, 10.0):
        machine.now += idle
        watch.warm()
    machine.now += 3.0
    watch.note()
    watch.warm()
    assert busy == [pytest.approx(0.05), WARM]


def readings(*some: tuple[float, int]) -> Iterator[dict[str, float]]:
    return ({"sm_mhz": clock, "throttle": float(bits)} for clock, bits in some)


def test_a_clock_far_below_the_usual_one_is_slow_unless_the_power_limit_or_idling_explains_it() -> None:
    seen = readings(*[(1980.0, 0)] * 6, (345.0, 0), (1500.0, POWER_LIMIT), (345.0, IDLE), (1900.0, 0))
    watch = ClockWatch("cuda", Machine().clock, lambda: next(seen))
    assert [watch.look()[1] for _ in range(10)] == [False] * 6 + [True, False, False, False]
    unknown = ClockWatch("cuda", Machine().clock, lambda: None)
    assert [unknown.look() for _ in range(9)] == [({}, False)] * 9


def test_what_was_noted_right_after_the_work_is_looked_at_once() -> None:
    seen = readings((1980.0, 0), (345.0, 1))
    watch = ClockWatch("cuda", Machine().clock, lambda: next(seen))
    watch.note()
    assert [watch.look()[0]["sm_mhz"] for _ in range(2)] == [1980.0, 345.0]
