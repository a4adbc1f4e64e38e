"""Single functions are timed in blocks: long enough, as many as needed, and never by a clock that cannot time."""

from __future__ import annotations

import itertools
import math
import random
import time
from collections.abc import Callable

import pytest

from placer.calibration.measuring import timing
from placer.calibration.measuring.timing import clock_resolution, measure, percentile, run_for
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


def test_a_long_call_is_timed_once_per_block() -> None:
    clock = FakeClock()
    assert measure(clock.work(lambda: 1.0), clock=clock, seconds=100) == [pytest.approx(1.0, rel=1e-5)] * 5
    assert clock.calls == 1 + 5  # the warm-up and the blocks


@pytest.mark.parametrize(("ticks_per_call", "loops"), [(100.0, 1), (98.0, 2), (10.0, 16), (1.0, 128), (0.25, 512)])
def test_loops_double_until_a_block_is_100_ticks(ticks_per_call: float, loops: int) -> None:
    clock = FakeClock()
    blocks = measure(clock.work(lambda: ticks_per_call * clock.tick), clock=clock, seconds=1e6)
    # The block's own reading of the clock (one tick) is all that is added to the work.
    assert blocks == [pytest.approx((ticks_per_call * loops + 1) / loops * clock.tick, rel=1e-9)] * 5
    assert clock.calls == 1 + (loops - 1) + 5 * loops  # warm-up, ranging 1 + 2 + 4 ..., five blocks


def test_five_percent_noise_is_averaged_until_the_median_is_known() -> None:
    clock = FakeClock()
    noise = random.Random(0)
    blocks = measure(clock.work(lambda: noise.gauss(1.0, 0.05)), clock=clock, seconds=1e6)
    assert percentile(blocks, 0.5) == pytest.approx(1.0, rel=0.03)
    assert len(blocks) > 20
    assert spread(blocks) / len(blocks) ** 0.5 <= timing.SMALL_ERROR


def test_no_block_more_than_needed_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "SMALL_ERROR", 0.015)
    clock = FakeClock()
    steps = [1.0, *[0.95, 1.05, 1.0, 1.0, 0.95, 1.05, 1.0] * 50]
    remaining = iter(steps)
    blocks = measure(clock.work(lambda: next(remaining)), clock=clock, seconds=1e6)
    count = len(blocks)
    assert clock.calls == 1 + count  # the warm-up, and every block
    assert blocks == pytest.approx(sorted(steps[1 : 1 + count]), abs=2e-6)
    enough = [n for n in range(5, count + 1) if spread(sorted(steps[1 : 1 + n])) / n**0.5 <= timing.SMALL_ERROR]
    assert enough == [count]


def test_timings_that_never_settle_are_an_error_that_names_the_remedy() -> None:
    clock = FakeClock()
    steps = itertools.cycle([1.0, 1.0, 1.0, 1e4, 1e4])
    with pytest.raises(TimerError, match=r"never settle: \d+ blocks spread by \d+% \(above 1000%\).*placer calibrate"):
        measure(clock.work(lambda: next(steps)), clock=clock, seconds=1e9)


def test_a_clock_that_leaps_to_infinity_is_an_error() -> None:
    clock = FakeClock()
    steps = itertools.chain([1.0, 1.0], itertools.repeat(float("inf")))
    with pytest.raises(TimerError, match="only moves forward"):
        measure(clock.work(lambda: next(steps)), clock=clock, seconds=1e9)


def test_a_clock_that_runs_ever_faster_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "MOST_BLOCKS", 25)
    clock = FakeClock()
    steps = (1.3**n for n in itertools.count())
    blocks = measure(clock.work(lambda: next(steps)), clock=clock, seconds=1e12)
    assert len(blocks) == 25
    assert all(map(math.isfinite, blocks))


@pytest.mark.parametrize("seed", range(5))
def test_outliers_barely_move_the_median(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "LEAST_BLOCKS", 200)
    clock = FakeClock()
    noise = random.Random(seed)

    def seconds() -> float:
        return noise.gauss(1.0, 0.05) * (10.0 if noise.random() < 0.05 else 1.0)

    assert percentile(measure(clock.work(seconds), clock=clock, seconds=1e6), 0.5) == pytest.approx(1.0, rel=0.02)


def test_no_block_is_begun_after_the_time() -> None:
    clock = FakeClock()
    durations = iter([1.0, 1.0, 3.0, 1.0, 3.0, 1.0, 3.0, 1.0, 3.0])
    assert len(measure(clock.work(lambda: next(durations)), clock=clock, seconds=8)) == 4  # after a warm-up of 1 s
    assert measure(clock.work(lambda: 30.0), clock=clock, seconds=1.0) == [pytest.approx(30.0, rel=1e-5)]


def test_a_function_that_becomes_faster_is_ranged_again() -> None:
    clock = FakeClock()
    durations = iter([1000.0, 1000.0, 1000.0])  # in ticks: the first calls select kernels
    blocks = measure(clock.work(lambda: next(durations, 50.0) * clock.tick), clock=clock, seconds=1e6)
    assert blocks == [pytest.approx(50.5 * clock.tick)] * 5  # two calls each


def test_a_device_is_waited_for_inside_the_block() -> None:
    clock = FakeClock()
    queued = [0.0]

    def synchronize() -> None:
        clock.now += queued[0]
        queued[0] = 0.0

    def issue() -> None:
        clock.now += 0.25
        queued[0] += 1.0

    assert measure(issue, synchronize=synchronize, clock=clock, seconds=100) == [pytest.approx(1.25, rel=1e-4)] * 5


def test_blocks_are_long_beside_an_idle_wait() -> None:
    clock = FakeClock()

    def synchronize() -> None:
        clock.now += 1.0

    blocks = measure(clock.work(lambda: 10.0), synchronize=synchronize, clock=clock, seconds=1e6)
    assert blocks == [pytest.approx(10.0 + 1 / 16, rel=1e-4)] * 5  # 160 s of work beside a wait of 1 s


@pytest.mark.parametrize(("seconds", "times"), [(0.004, 3), (0.5, 1), (0.0, 1000)])
def test_a_function_runs_for_a_while_and_not_for_ever(seconds: float, times: int) -> None:
    """A clock that stands still does not keep it waiting."""
    ran: list[None] = []
    run_for(lambda: ran.append(None), 0.01, 1000, lambda: seconds * len(ran))
    assert len(ran) == times


def test_a_clock_that_stands_still_is_an_error() -> None:
    with pytest.raises(TimerError, match="stands still"):
        measure(lambda: None, clock=lambda: 5.0, seconds=1.0)


def test_a_clock_that_stops_half_way_is_an_error() -> None:
    reads = iter(range(20))
    with pytest.raises(TimerError, match="stands still"):
        measure(lambda: None, clock=lambda: float(next(reads, 20)), seconds=1e6)


def test_a_clock_that_runs_backwards_is_an_error() -> None:
    reads = iter(range(0, -1_000, -1))
    with pytest.raises(TimerError, match="only moves forward"):
        measure(lambda: None, clock=lambda: float(next(reads)), seconds=1.0)


def test_a_clock_that_gives_nan_is_an_error() -> None:
    with pytest.raises(TimerError, match="only moves forward"):
        measure(lambda: None, clock=lambda: float("nan"), seconds=1.0)


def test_the_real_clock_times_a_real_function() -> None:
    """One that stands still while other programs have the core."""
    blocks = measure(lambda: sum(range(100)), seconds=0.2, clock=time.process_time)
    assert 0 < blocks[0] <= blocks[-1] < 0.2
    assert 0 < clock_resolution(time.process_time) < 1e-3


def test_percentile_interpolates() -> None:
    assert percentile([1.0, 2.0, 3.0, 5.0], 0.5) == 2.5
    assert percentile([1.0, 2.0, 3.0, 5.0], 1.0) == 5.0
    assert percentile([7.0], 0.9) == 7.0
