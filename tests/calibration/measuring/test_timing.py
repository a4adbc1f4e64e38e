"""Single functions are timed in blocks: long enough, as many as needed, and never by a clock that cannot time."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable, Iterator

import pytest

from placer.calibration.measuring import timing
from placer.calibration.measuring.timing import Ends, Timer, clock_resolution, measure, percentile, run_for
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


@pytest.mark.parametrize(("ticks_per_call", "loops"), [(1e6, 1), (98.0, 2), (10.0, 16), (0.25, 512)])
def test_loops_double_until_a_block_is_100_ticks(ticks_per_call: float, loops: int) -> None:
    clock = FakeClock()
    blocks = measure(clock.work(lambda: ticks_per_call * clock.tick), clock=clock, seconds=1e6)
    # The block's own reading of the clock (one tick) is all that is added to the work.
    assert blocks == [pytest.approx((ticks_per_call * loops + 1) / loops * clock.tick, rel=1e-9)] * 5
    assert clock.calls == 1 + (loops - 1) + 5 * loops  # warm-up, ranging 1 + 2 + 4 ..., five blocks


def test_noise_is_averaged_until_the_median_is_known_and_outliers_barely_move_it() -> None:
    clock, noise = FakeClock(), random.Random(0)

    def seconds() -> float:
        return noise.gauss(1.0, 0.05) * (10.0 if noise.random() < 0.05 else 1.0)

    blocks = measure(clock.work(seconds), clock=clock, seconds=1e6)
    assert clock.calls == 1 + len(blocks)
    assert len(blocks) > 20
    assert percentile(blocks, 0.5) == pytest.approx(1.0, rel=0.03)
    spread = (percentile(blocks, 0.75) - percentile(blocks, 0.25)) / percentile(blocks, 0.5)
    assert spread / len(blocks) ** 0.5 <= timing.SMALL_ERROR


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


@pytest.mark.parametrize(("seconds", "times"), [(0.004, 3), (0.5, 1), (0.0, 1000)])
def test_a_function_runs_for_a_while_and_not_for_ever(seconds: float, times: int) -> None:
    """A clock that stands still does not keep it waiting."""
    ran: list[None] = []
    run_for(lambda: ran.append(None), 0.01, 1000, lambda: seconds * len(ran))
    assert len(ran) == times


@pytest.mark.parametrize(("reads", "message"), [
    (itertools.repeat(5.0), "stands still"),
    (itertools.chain(map(float, range(20)), itertools.repeat(20.0)), "stands still"),  # half way
    (map(float, range(0, -1_000, -1)), "only moves forward"),
    (itertools.repeat(float("nan")), "only moves forward"),
    (itertools.chain(map(float, range(20)), itertools.repeat(float("inf"))), "only moves forward"),
])  # fmt: skip
def test_a_clock_that_cannot_time_is_an_error(reads: Iterator[float], message: str) -> None:
    with pytest.raises(TimerError, match=message):
        measure(lambda: None, clock=lambda: next(reads), seconds=1e6)


def test_timings_that_never_settle_are_an_error_that_names_the_remedy() -> None:
    clock = FakeClock()
    steps = itertools.cycle([1.0, 1.0, 1.0, 1e4, 1e4])
    with pytest.raises(TimerError, match=r"never settle: \d+ blocks spread by \d+% \(above 1000%\).*placer calibrate"):
        measure(clock.work(lambda: next(steps)), clock=clock, seconds=1e9)


def test_the_real_clock_times_a_real_function() -> None:
    """One that stands still while other programs have the core."""
    blocks = measure(lambda: sum(range(100)), seconds=0.2, clock=time.process_time)
    assert 0 < blocks[0] <= blocks[-1] < 0.2
    assert 0 < clock_resolution(time.process_time) < 1e-3


def test_percentile_interpolates() -> None:
    assert [percentile([1.0, 2.0, 3.0, 5.0], share) for share in (0.5, 1.0)] == [2.5, 5.0]
    assert percentile([7.0], 0.9) == 7.0
