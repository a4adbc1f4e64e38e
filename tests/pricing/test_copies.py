"""Copies are priced by the sizes that were measured, or by a start and a rate."""

from __future__ import annotations

import pytest

from placer.pricing import FRESH, SIZES, copies_of_steps, copy_seconds

LINE = {"copy/h2d/pageable/seconds_per_tensor": 1e-5, "copy/h2d/pageable/bytes_per_second": 1e9}
#: Seconds of each of ``SIZES``.
MEASURED = dict(zip(SIZES, (1e-5, 2e-5, 9e-5, 7e-4, 5e-2), strict=True))
RATES = {**LINE, **{f"copy/h2d/pageable/{size}": seconds for size, seconds in MEASURED.items()}}


def seconds(*sizes: int, rates: dict[str, float] = RATES) -> float:
    return copy_seconds(sizes, rates, "h2d", "pageable")


def test_a_start_and_a_rate_are_a_line_and_nothing_known_is_nothing() -> None:
    assert seconds(10**6, 10**6, rates=LINE) == pytest.approx(2 * (1e-5 + 1e-3))
    assert copy_seconds([10**6], LINE, "d2h", "pageable") == copy_seconds([10**6], LINE, "h2d", "pinned") == 0.0


def test_a_size_that_was_measured_takes_what_it_took() -> None:
    for size, took in MEASURED.items():
        assert seconds(size) == pytest.approx(took)
    assert seconds(*SIZES) == pytest.approx(sum(MEASURED.values()))


def test_sizes_between_lie_between_and_small_ones_take_as_long_as_the_smallest() -> None:
    assert seconds(0) == seconds(1) == MEASURED[SIZES[0]]
    assert seconds((SIZES[1] + SIZES[2]) // 2) == pytest.approx((MEASURED[SIZES[1]] + MEASURED[SIZES[2]]) / 2)
    found = [seconds(size) for size in range(1 << 10, FRESH, 1 << 19)]
    assert found == sorted(found)


def test_only_what_is_fresh_memory_is_as_dear_as_the_largest() -> None:
    last = (MEASURED[4 << 20] - MEASURED[512 << 10]) / (4 - 0.5)  # of each MB
    assert seconds(FRESH - (1 << 20)) == pytest.approx(MEASURED[4 << 20] + 27 * last)
    assert seconds(FRESH) == pytest.approx(MEASURED[64 << 20] / 2)
    assert seconds(256 << 20) == pytest.approx(4 * MEASURED[64 << 20])


def test_a_device_without_room_for_the_largest_goes_on_with_the_line() -> None:
    rates = {name: value for name, value in RATES.items() if not name.endswith(f"/{SIZES[-1]}")}
    last = (MEASURED[4 << 20] - MEASURED[512 << 10]) / (4 - 0.5)
    assert seconds(64 << 20, rates=rates) == pytest.approx(MEASURED[4 << 20] + 60 * last)


def test_a_copy_of_a_step_takes_no_less_than_one_of_a_warm_buffer() -> None:
    for direction in ("h2d", "d2h"):
        for rate in (2e9, 3e10):
            found = copies_of_steps(direction, 1e-5, rate)
            for size in SIZES:
                assert copy_seconds([size], found, direction, "pageable") >= 1e-5 + size / rate
