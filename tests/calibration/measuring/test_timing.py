"""Single functions are timed in blocks: long enough, as many as needed, and never by a clock that cannot time."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator

import pytest

from placer.calibration.measuring import timing
from placer.calibration.measuring.timing import Ends, Timer, measure, percentile
from placer.errors import TimerError


class FakeClock:
    """A clock that moves by ``tick`` when read and by whatever the work under test says it took."""

    def __init__(self, tick: float = 2.0**-20) -> None:
        self.now = 0.0
        self.tick = tick
        self.calls = 0

    def __call__(self) -> float:
        self.now += self.tick
        return self.now

    def work(self, seconds: Callable[[], float]) -> Callable[[], None]:
        def run() -> None:
            self.calls += 1
            self.now += seconds()

        return run


def spread(blocks: list[float]) -> float:
    return (percentile(blocks, 0.75) - percentile(blocks, 0.25)) / percentile(blocks, 0.5)


@pytest.mark.parametrize(("ticks_per_call", "loops"), [(1e6, 1), (98.0, 2), (10.0, 16), (0.25, 512)])
def test_loops_double_until_a_block_is_100_ticks(ticks_per_call: float, loops: int) -> None:
    clock = FakeClock()
    blocks = measure(clock.work(lambda: ticks_per_call * clock.tick), clock=clock, seconds=1e6)
    # The block's own reading of the clock (one tick) is all that is added to the work.
    assert blocks == [pytest.approx((ticks_per_call * loops + 1) / loops * clock.tick, rel=1e-9)] * 5
    assert clock.calls == 1 + (loops - 1) + 5 * loops  # warm-up, ranging 1 + 2 + 4 ..., five blocks


def test_no_block_more_than_needed_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "SMALL_ERROR", 0.015)
    clock, steps = FakeClock(), [1.0, *[0.95, 1.05, 1.0, 1.0, 0.95, 1.05, 1.0] * 50]
    remaining = iter(steps)
    blocks = measure(clock.work(lambda: next(remaining)), clock=clock, seconds=1e6)
    count = len(blocks)
    assert clock.calls == 1 + count  # the warm-up, and every block
    assert blocks == pytest.approx(sorted(steps[1 : 1 + count]), abs=2e-6)
    enough = [n for n in range(5, count + 1) if spread(sorted(steps[1 : 1 + n])) / n**0.5 <= timing.SMALL_ERROR]
    assert enough == [count]


def test_a_clock_that_runs_ever_faster_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "MOST_BLOCKS", 25)
    clock = FakeClock()
    steps = (1.3**n for n in itertools.count())
    blocks = measure(clock.work(lambda: next(steps)), clock=clock, seconds=1e12)
    assert len(blocks) == 25
    assert all(map(math.isfinite, blocks))


def test_no_block_is_begun_after_the_time() -> None:
    clock = FakeClock()
    durations = iter([1.0, 1.0, 3.0, 1.0, 3.0, 1.0, 3.0, 1.0, 3.0])
    assert len(measure(clock.work(lambda: next(durations)), clock=clock, seconds=8)) == 4  # after a warm-up of 1 s
    assert measure(clock.work(lambda: 30.0), clock=clock, seconds=1.0) == [pytest.approx(30.0, rel=1e-5)]


def test_a_device_is_waited_for_inside_the_block() -> None:
    clock, queued = FakeClock(), [0.0]

    def synchronize() -> None:
        clock.now += queued[0]
        queued[0] = 0.0

    def issue() -> None:
        clock.now += 0.25
        queued[0] += 1.0

    assert measure(issue, synchronize=synchronize, clock=clock, seconds=100) == [pytest.approx(1.25, rel=1e-4)] * 5


def test_a_step_that_returns_the_ends_of_its_phases_is_timed_phase_by_phase() -> None:
    """Clearing gradients is the update's; the phases add up to the step, and a device may still be busy with them."""
    now = [0.0]

    def step() -> Ends:
        start = now[0]
        now[0] = start + 1.0  # with a last second after everything
        return Ends(cleared=start + 0.1, forward=start + 0.4, backward=start + 0.9)

    timed = Timer(step, clock=lambda: now[0]).time()
    assert timed.seconds == 1.0
    assert timed.phases == pytest.approx({"forward": 0.3, "backward": 0.5, "update": 0.2})
    assert Timer(step, synchronize=lambda: None, clock=lambda: now[0]).time().phases is None


@pytest.mark.parametrize(
    ("reads", "message"),
    [
        (itertools.repeat(5.0), "stands still"),
        (itertools.chain(map(float, range(20)), itertools.repeat(20.0)), "stands still"),  # half way
        (map(float, range(0, -1_000, -1)), "only moves forward"),
        (itertools.repeat(float("nan")), "only moves forward"),
        (itertools.chain(map(float, range(20)), itertools.repeat(float("inf"))), "only moves forward"),
    ],
)
def test_a_clock_that_cannot_time_is_an_error(reads: Iterator[float], message: str) -> None:
    with pytest.raises(TimerError, match=message):
        measure(lambda: None, clock=lambda: next(reads), seconds=1e6)


def test_timings_that_never_settle_are_an_error_that_names_the_remedy() -> None:
    clock = FakeClock()
    steps = itertools.cycle([1.0, 1.0, 1.0, 1e4, 1e4])
    with pytest.raises(TimerError, match=r"never settle: \d+ blocks spread by \d+% \(above 1000%\).*placer calibrate"):
        measure(clock.work(lambda: next(steps)), clock=clock, seconds=1e9)
