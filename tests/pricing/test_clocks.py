"""The two clocks, on schedules made by hand."""

from __future__ import annotations

import pytest

from placer.pricing.clocks import QUEUE_DEPTH, Clocks, ScheduleItem


def played(*items: ScheduleItem, launch: float = 0.0, depth: int = QUEUE_DEPTH) -> Clocks:
    clocks = Clocks(launch, depth=depth)
    for item in items:
        clocks.play(item)
    return clocks


def test_one_kernel_starts_when_it_is_issued_and_launched() -> None:
    clocks = played(ScheduleItem(issue=10.0, device=5.0), launch=1.0)
    assert (clocks.host, clocks.device) == (10.0, 16.0)


def test_many_kernels_run_while_the_rest_are_issued() -> None:
    """Host and device share an op of many kernels: an LSTM takes the longer of the two, not the sum."""
    bound_by_host = played(ScheduleItem(issue=10.0, device=5.0, kernels=100), launch=1.0)
    assert bound_by_host.device == pytest.approx(10.0 + 1.0 + 0.05)
    bound_by_device = played(ScheduleItem(issue=10.0, device=50.0, kernels=100), launch=1.0)
    assert bound_by_device.device == pytest.approx(0.1 + 1.0 + 50.0)
    assert bound_by_device.host == pytest.approx(10.0)


def test_a_full_queue_holds_the_host_back_within_an_op_too() -> None:
    clocks = played(ScheduleItem(issue=10.0, device=1000.0, kernels=100), depth=10)
    assert clocks.host == pytest.approx(0.1 + 90 * 10.0, rel=0.01)
    assert played(ScheduleItem(issue=10.0, device=1000.0, kernels=100), depth=1000).host == pytest.approx(10.0)


def test_the_queue_holds_as_many_kernels_as_it_is_deep() -> None:
    """The third of four waits until the first has ended, the fourth until the second has."""
    clocks = played(ScheduleItem(issue=4.0, device=40.0, kernels=4), depth=2)
    assert (clocks.host, clocks.device, list(clocks.ends)) == (22.0, 41.0, [31.0, 41.0])


def test_what_the_host_does_alone_leaves_the_device_as_it_is() -> None:
    clocks = played(ScheduleItem(issue=3.0), ScheduleItem(issue=1.0, alone=0.5), launch=1.0)
    assert (clocks.host, clocks.device, list(clocks.ends)) == (4.5, 0.0, [])


def test_a_wait_ends_when_the_device_is_done_and_takes_its_own_time() -> None:
    clocks = played(ScheduleItem(issue=1.0, device=5.0), ScheduleItem(issue=1.0, waits=True, alone=0.5))
    assert clocks.host == clocks.device == 6.5
    late = played(ScheduleItem(issue=1.0, device=5.0), ScheduleItem(issue=9.0, waits=True, alone=0.5))
    assert late.host == late.device == 10.5


def test_playing_tells_when_the_first_kernel_starts_and_all_are_issued() -> None:
    clocks = Clocks(1.0)
    assert clocks.play(ScheduleItem(issue=4.0, device=2.0, kernels=4)) == (2.0, 4.0)
    assert clocks.play(ScheduleItem(issue=3.0)) == (7.0, 7.0)


def test_items_are_played_alike_one_by_one_and_together() -> None:
    items = (
        ScheduleItem(issue=4.0, device=9.0, kernels=6), ScheduleItem(issue=1.0), ScheduleItem(issue=0.3, device=7.0),
        ScheduleItem(issue=1.0, device=2.0, waits=True, alone=0.5), ScheduleItem(issue=0.2, device=3.0, kernels=2),
    )  # fmt: skip
    together, alone = Clocks(1.0, depth=3), played(*items[:-1], launch=1.0, depth=3)
    assert together.play(*items) == alone.play(items[-1])
    assert together == alone
