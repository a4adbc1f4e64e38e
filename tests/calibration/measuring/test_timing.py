"""Single functions are timed in blocks, never by a clock that cannot time; a switch is put back afterwards."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest
import torch

from placer.calibration.measuring.rates import RateTimer, flops_per_second, products_in_tf32
from placer.calibration.measuring.timing import measure
from placer.errors import TimerError
from placer.pricing.physics import allows_tf32


class FakeClock:
    """A clock that moves by ``tick`` when read and by whatever the work under test says it took."""

    def __init__(self, tick: float = 2.0**-20) -> None:
        self.now = 0.0
        self.tick = tick

    def __call__(self) -> float:
        self.now += self.tick
        return self.now

    def work(self, seconds: Callable[[], float]) -> Callable[[], None]:
        def run() -> None:
            self.now += seconds()

        return run


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


@pytest.mark.parametrize("error", [TypeError, NotImplementedError])
def test_a_dtype_that_the_device_refuses_has_no_rate(error: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise error("Cannot convert a MPS Tensor to float64 dtype")

    monkeypatch.setattr(torch.Tensor, "to", refused)
    assert flops_per_second("cpu", torch.float64, RateTimer(None, 0.1, FakeClock())) is None


@pytest.mark.parametrize("before", ["highest", "high"])
def test_the_switch_of_products_is_left_as_it_was(before: str) -> None:
    torch.set_float32_matmul_precision(before)
    try:
        for on in (True, False):
            with products_in_tf32(on):
                assert allows_tf32("matmul") is on
            assert torch.get_float32_matmul_precision() == before
    finally:
        torch.set_float32_matmul_precision("highest")
