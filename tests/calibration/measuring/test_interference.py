"""Other programs on the cores are noticed."""

from __future__ import annotations

from placer.calibration.measuring.clocks import Load


def test_idle_cores_and_our_own_work_disturb_nothing() -> None:
    before = Load(everybody=100.0, own=10.0, wall=50.0)
    assert not Load(100.0, 10.0, 51.0).disturbed_since(before)
    assert not Load(102.0, 12.0, 51.0).disturbed_since(before)


def test_somebody_elses_work_does() -> None:
    before = Load(everybody=100.0, own=10.0, wall=50.0)
    assert Load(103.0, 12.0, 51.0).disturbed_since(before)
    assert Load(100.2, 10.0, 51.0).disturbed_since(before)


def test_a_tick_of_the_systems_clock_is_not_somebody() -> None:
    before = Load(everybody=100.0, own=10.0, wall=50.0)
    assert not Load(100.03, 10.01, 50.02).disturbed_since(before)


def test_the_counters_move_forward() -> None:
    before = Load.now()
    total = sum(i * i for i in range(200_000))
    after = Load.now()
    assert total > 0
    assert after.wall > before.wall
    assert after.own >= before.own
    assert after.everybody >= before.everybody
