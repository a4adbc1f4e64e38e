from __future__ import annotations

import itertools
import math
import random
import time
from collections.abc import Callable

import pytest

from placer.calibration.measuring.timing import Timing, clock_resolution, measure, percentile, relative_spread
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


def test_a_long_call_is_timed_once_per_block() -> None:
    clock = FakeClock()
    timing = measure(clock.work(lambda: 1.0), clock=clock, min_rounds=5, max_seconds=100)
    assert timing.loops == 1
    assert timing.count == 5
    assert clock.calls == 1 + 5  # the warm-up and the blocks
    assert timing.median == pytest.approx(1.0, rel=1e-5)
    assert timing.spread == 0.0
    assert timing.stable
    assert timing.host_seconds == 0.0


@pytest.mark.parametrize(("ticks_per_call", "loops"), [(100.0, 1), (98.0, 2), (10.0, 16), (1.0, 128), (0.25, 512)])
def test_loops_double_until_a_block_is_100_ticks(ticks_per_call: float, loops: int) -> None:
    clock = FakeClock()
    timing = measure(clock.work(lambda: ticks_per_call * clock.tick), clock=clock, min_rounds=5, max_seconds=1e6)
    assert timing.loops == loops
    # The block's own reading of the clock (one tick) is all that is added to the work.
    assert timing.median == pytest.approx((ticks_per_call * loops + 1) / loops * clock.tick, rel=1e-9)
    assert clock.calls == 1 + (loops - 1) + 5 * loops  # warm-up, ranging 1 + 2 + 4 ..., five blocks


def test_five_percent_noise_is_averaged_until_the_median_is_known() -> None:
    clock = FakeClock()
    noise = random.Random(0)
    timing = measure(clock.work(lambda: noise.gauss(1.0, 0.05)), clock=clock, max_seconds=1e6, target_spread=0.005)
    assert timing.median == pytest.approx(1.0, rel=0.015)
    assert timing.spread == pytest.approx(0.05 * 1.349, rel=0.25)
    assert timing.stable
    assert timing.spread / timing.count**0.5 <= 0.005
    assert timing.p10 < timing.median < timing.p90


def test_the_report_of_five_percent_noise_is_exact() -> None:
    clock = FakeClock(tick=0.0)
    reads = iter(range(1, 1000))
    tick = 2.0**-20

    def ticking() -> float:  # the clock moves a little when it is looked at, or it would be called dead
        return clock.now + tick * next(reads)

    steps = itertools.cycle([1.0, 0.95, 1.05, 1.0, 0.95, 1.05, 1.0])
    timing = measure(clock.work(lambda: next(steps)), clock=ticking, max_seconds=1e6, target_spread=0.015, min_rounds=5)
    assert clock.calls == 1 + timing.count * timing.loops  # the warm-up, and every block
    assert timing.loops == 1
    assert timing.stable
    blocks = sorted(_noise(timing.count))
    exact = Timing(
        median=percentile(blocks, 0.5), p10=percentile(blocks, 0.1), p90=percentile(blocks, 0.9),
        spread=relative_spread(blocks), count=len(blocks), stable=True,
    )  # fmt: skip
    for name in ("median", "p10", "p90", "spread"):
        assert getattr(timing, name) == pytest.approx(getattr(exact, name), abs=2e-6), name
    enough = [n for n in range(5, timing.count + 1) if relative_spread(sorted(_noise(n))) / n**0.5 <= 0.015]
    assert enough == [timing.count]  # no block more, and none less


def _noise(count: int) -> list[float]:
    return list(itertools.islice(itertools.cycle([0.95, 1.05, 1.0, 1.0, 0.95, 1.05, 1.0]), count))


def test_timings_that_never_settle_are_an_error_that_names_the_remedy() -> None:
    clock = FakeClock()
    steps = itertools.cycle([1.0, 1.0, 1.0, 1e4, 1e4])
    with pytest.raises(TimerError, match=r"never settle: \d+ blocks spread by \d+% \(above 1000%\).*placer calibrate"):
        measure(clock.work(lambda: next(steps)), clock=clock, max_rounds=60, max_seconds=1e9)


def test_a_clock_that_leaps_to_infinity_is_an_error() -> None:
    clock = FakeClock()
    steps = itertools.chain([1.0, 1.0], itertools.repeat(float("inf")))
    with pytest.raises(TimerError, match="only moves forward"):
        measure(clock.work(lambda: next(steps)), clock=clock, max_seconds=1e9)


def test_a_clock_that_runs_ever_faster_ends_and_is_unstable() -> None:
    clock = FakeClock()
    steps = (1.3**n for n in itertools.count())
    timing = measure(clock.work(lambda: next(steps)), clock=clock, max_rounds=25, max_seconds=1e12)
    assert not timing.stable
    assert all(math.isfinite(value) for value in (timing.median, timing.p10, timing.p90, timing.spread))


@pytest.mark.parametrize("seed", range(5))
def test_outliers_barely_move_the_median(seed: int) -> None:
    clock = FakeClock()
    noise = random.Random(seed)

    def seconds() -> float:
        return noise.gauss(1.0, 0.05) * (10.0 if noise.random() < 0.05 else 1.0)

    timing = measure(clock.work(seconds), clock=clock, min_rounds=200, max_seconds=1e6, target_spread=0.01)
    assert timing.median == pytest.approx(1.0, rel=0.02)
    assert timing.spread < 0.15


def test_time_limit_stops_an_unstable_measurement_and_says_so() -> None:
    clock = FakeClock()
    durations = iter([1.0, 1.0, 3.0, 1.0, 3.0, 1.0, 3.0, 1.0, 3.0])
    timing = measure(clock.work(lambda: next(durations)), clock=clock, min_rounds=3, max_seconds=8, target_spread=0.001)
    assert timing.count == 4  # 1 (warm-up) + 1 + 3 + 1 + 3 seconds
    assert not timing.stable


def test_one_block_is_timed_even_when_a_call_is_longer_than_the_limit() -> None:
    clock = FakeClock()
    timing = measure(clock.work(lambda: 30.0), clock=clock, max_seconds=1.0)
    assert (timing.count, timing.stable) == (1, False)
    assert timing.median == timing.p10 == timing.p90 == pytest.approx(30.0, rel=1e-5)


def test_a_function_that_becomes_faster_is_ranged_again() -> None:
    clock = FakeClock()
    durations = iter([1000.0, 1000.0, 1000.0])  # in ticks: the first calls select kernels
    timing = measure(clock.work(lambda: next(durations, 50.0) * clock.tick), clock=clock, min_rounds=5, max_seconds=1e6)
    assert timing.loops == 2
    assert timing.count == 5
    assert timing.median == pytest.approx(50.5 * clock.tick)


def test_a_device_is_waited_for_inside_the_block() -> None:
    clock = FakeClock()
    queued = [0.0]

    def synchronize() -> None:
        clock.now += queued[0]
        queued[0] = 0.0

    def issue() -> None:
        clock.now += 0.25
        queued[0] += 1.0

    timing = measure(issue, synchronize=synchronize, clock=clock, max_seconds=100)
    assert timing.median == pytest.approx(1.25, rel=1e-4)
    assert timing.host_seconds == pytest.approx(0.25, rel=1e-4)


def test_blocks_are_long_beside_an_idle_wait() -> None:
    clock = FakeClock()

    def synchronize() -> None:
        clock.now += 1.0

    timing = measure(clock.work(lambda: 10.0), synchronize=synchronize, clock=clock, max_seconds=1e6)
    assert timing.loops == 16  # 160 s of work beside a wait of 1 s
    assert timing.median == pytest.approx(10.0, rel=0.01)


def test_a_clock_that_stands_still_is_an_error() -> None:
    with pytest.raises(TimerError, match="stands still"):
        measure(lambda: None, clock=lambda: 5.0)


def test_a_clock_that_stops_half_way_is_an_error() -> None:
    reads = iter(range(20))
    with pytest.raises(TimerError, match="stands still"):
        measure(lambda: None, clock=lambda: float(next(reads, 20)))


def test_a_clock_that_runs_backwards_is_an_error() -> None:
    reads = iter(range(0, -1_000, -1))
    with pytest.raises(TimerError, match="only moves forward"):
        measure(lambda: None, clock=lambda: float(next(reads)))


def test_a_clock_that_gives_nan_is_an_error() -> None:
    with pytest.raises(TimerError, match="only moves forward"):
        measure(lambda: None, clock=lambda: float("nan"))


@pytest.mark.parametrize(
    "arguments", [{"min_rounds": 1}, {"min_rounds": 9, "max_rounds": 8}, {"max_seconds": 0}, {"target_spread": 0}]
)
def test_arguments_out_of_range_are_refused(arguments: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="got"):
        measure(lambda: None, **arguments)  # type: ignore[arg-type]


def test_the_real_clock_times_a_real_function() -> None:
    timing = measure(lambda: sum(range(100)), max_seconds=0.2)
    assert isinstance(timing, Timing)
    assert 0 < timing.p10 <= timing.median <= timing.p90 < 0.2
    assert 0 < clock_resolution(time.perf_counter) < 1e-3


def test_percentile_interpolates() -> None:
    assert percentile([1.0, 2.0, 3.0, 5.0], 0.5) == 2.5
    assert percentile([1.0, 2.0, 3.0, 5.0], 1.0) == 5.0
    assert percentile([7.0], 0.9) == 7.0
