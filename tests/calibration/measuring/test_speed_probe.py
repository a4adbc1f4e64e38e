"""What is timed at another speed than the machine's usual one is told from the rest."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch

from placer.calibration.measuring.speed_probe import (
    LASTING,
    MOST_REPEATS,
    MOST_RESUMING,
    PATIENCE,
    RESUMED,
    STRETCH,
    UNTIMED,
    WAITING,
    SpeedProbe,
    at_usual_speed,
    binned,
    densest,
    is_alike,
    probed_cores,
    watched,
)
from placer.calibration.measuring.step import Measurement, measure_interleaved


class Probe(SpeedProbe):
    """Its work on all cores would take none of the time that is made up, but much of the real one."""

    def _on_all_cores(self, exponentials: int, sums: int) -> None:
        pass


class Machine:
    """A clock on which a reading takes 50 microseconds and a step 1 millisecond, times how contended the machine is."""

    def __init__(self, slowed: Callable[[float], float] = lambda _: 1.0) -> None:
        self.now = 0.0
        self.slowed = slowed

    def clock(self) -> float:
        return self.now

    def work(self) -> None:
        self.now += 50e-6 * self.slowed(self.now)

    def step(self) -> float:
        took = 1e-3 * self.slowed(self.now)
        self.now += took
        return took

    def speed_probe(self, usual: float | None = None) -> SpeedProbe:
        return Probe(1, usual=usual, work=self.work, clock=self.clock)


def by_turns(undisturbed: float, disturbed: float) -> Callable[[float], float]:
    """Contention that lasts ``disturbed`` seconds and stops for ``undisturbed``, again and again."""
    return lambda now: 1.0 if now % (undisturbed + disturbed) < undisturbed else 1.8


def test_a_real_reading_takes_a_moment_and_the_usual_one_is_among_them() -> None:
    found = SpeedProbe(torch.get_num_threads())
    readings = sorted(found.read() for _ in range(60))
    assert readings[0] > 0
    assert readings[0] / 1.03 <= found.usual <= readings[-1] * 1.03
    assert any(map(found.is_usual, readings))


def test_an_undisturbed_machine_is_always_at_its_usual_speed() -> None:
    machine = Machine()
    found = watched(machine.speed_probe(), machine.step, 40)
    assert [took for took, _ in found] == [pytest.approx(1e-3)] * 40
    assert {round(reading, 9) for _, reading in found} == {50e-6}


@pytest.mark.parametrize(("undisturbed", "disturbed", "usual"), [(0.05, 0.02, 1e-3), (0.02, 0.05, 1.8e-3)])
def test_another_speed_is_waited_out_and_what_was_timed_at_it_is_left_out(
    undisturbed: float, disturbed: float, usual: float
) -> None:
    machine = Machine(by_turns(undisturbed, disturbed))
    speed_probe = machine.speed_probe()
    for _ in range(10):
        watched(speed_probe, machine.step, 20)
    found = watched(speed_probe, machine.step, 100)
    kept = at_usual_speed(speed_probe, found)
    assert len(found) > len(kept) >= 100
    ends = sorted(round(took, 9) for took, _ in kept)
    assert ends[5] == ends[-5] == pytest.approx(usual)  # the speed may change between two readings


def test_as_many_results_as_wanted_and_never_more_than_twice_that() -> None:
    machine = Machine(lambda now: 1.0 if now < 0.01 else 1.8)
    speed_probe = machine.speed_probe(usual=50e-6)
    assert len(watched(speed_probe, machine.step, 5)) == 5
    machine.now = 1.0
    assert len(watched(speed_probe, machine.step, 5)) == MOST_REPEATS * 5


def test_a_reading_ends_at_once_where_another_program_holds_a_core(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine()
    speed_probe = machine.speed_probe()
    usual = speed_probe.read()
    began, works = machine.now, []

    def stuck(exponentials: int, sums: int) -> None:
        machine.now += 2e-3 * (exponentials + sums)

    monkeypatch.setattr(speed_probe, "_on_all_cores", stuck)
    monkeypatch.setattr(speed_probe, "_work", lambda: works.append(machine.now))
    assert speed_probe.read() == pytest.approx(machine.now - began) == pytest.approx(4e-3 * UNTIMED)
    assert not works
    assert not is_alike(machine.now - began, usual)


def test_waiting_has_an_end() -> None:
    machine = Machine(lambda now: 1.0 if now < 1.0 else 1.8)
    speed_probe = machine.speed_probe(usual=50e-6)
    watched(speed_probe, machine.step, 900)
    machine.now = start = 2.0
    for _ in range(100):
        speed_probe.settle()
    assert PATIENCE < machine.now - start < WAITING * machine.now + 2 * PATIENCE


def test_a_machine_that_is_always_contended_is_measured_as_contended() -> None:
    machine = Machine(lambda _: 1.8)
    speed_probe = machine.speed_probe()
    assert speed_probe.is_usual(speed_probe.read())
    knowing = machine.speed_probe(usual=50e-6)
    found = watched(knowing, machine.step, 5)
    assert not any(knowing.is_usual(reading) for _, reading in found)
    assert at_usual_speed(knowing, found) == found  # better than nothing


def test_many_readings_of_waiting_do_not_outweigh_few_long_steps() -> None:
    """Time counts, not readings: a tenth of a second has two of them around a long step, and 1,000 while waiting."""
    machine = Machine(lambda now: 1.0 if now < 3.0 else 1.8)
    speed_probe = machine.speed_probe()
    while machine.now < 3.0:
        speed_probe.read()
        machine.now += LASTING
    while machine.now < 5.0:
        speed_probe.read()
    assert speed_probe.usual == pytest.approx(50e-6, rel=0.02)


def test_the_usual_reading_is_one_that_occurs_and_not_one_between() -> None:
    slowed = itertools.cycle([1.0] * 9 + [1.35] * 3 + [1.7] * 4 + [1.9] * 4)  # contention on one core, the other, both
    machine = Machine(lambda _: next(slowed))
    speed_probe = machine.speed_probe()
    for _ in range(200):
        speed_probe.read()
        machine.now += 1e-3
    assert speed_probe.usual == pytest.approx(50e-6, rel=0.02)
    assert densest({binned(1e-4): 3.0, binned(1.1e-4): 1.0, binned(2e-4): 3.5}) == pytest.approx(1.02e-4, rel=0.02)


def test_without_a_probe_everything_counts() -> None:
    answers = iter(range(5))
    found = watched(None, lambda: next(answers), 5)
    assert found == [(n, 0.0) for n in range(5)]
    assert at_usual_speed(None, found) == found


@pytest.mark.parametrize(("undisturbed", "quiet"), [(0.0, True), (0.001, True), (0.03, False)])
def test_a_machine_is_quiet_where_it_is_hardly_ever_faster(undisturbed: float, quiet: bool) -> None:
    machine = Machine(by_turns(undisturbed, 0.05))
    speed_probe = machine.speed_probe()
    for _ in range(40):
        watched(speed_probe, machine.step, 20)
    assert speed_probe.is_quiet(50e-6)
    assert speed_probe.is_quiet(1.8 * 50e-6) is quiet


def test_the_quiet_reading_is_found_on_a_machine_that_is_mostly_contended() -> None:
    slowed = itertools.cycle([1.8, 1.35, 1.7, 1.9, 1.0, 1.35, 1.8, 1.7])
    machine = Machine(lambda _: next(slowed))
    assert machine.speed_probe().quiet_reading(0.05) == pytest.approx(50e-6, rel=0.02)
    assert machine.now == pytest.approx(0.05, abs=1e-3)


def test_shorter_readings_are_as_unusual_as_longer_ones() -> None:
    assert is_alike(1.05, 1.0)
    assert is_alike(1.0, 1.05)
    assert not is_alike(1.2, 1.0)
    assert not is_alike(1.0, 1.2)


def test_an_accelerators_steps_depend_on_the_speed_of_one_core() -> None:
    assert (probed_cores("cpu", 8), probed_cores("cuda", 8)) == (8, 1)


class Evicting(Machine):
    """On which a reading evicts so much that the step after it takes 1.3 times as long."""

    def __init__(self) -> None:
        super().__init__()
        self.evicted = False

    def work(self) -> None:
        super().work()
        self.evicted = True

    def step(self) -> float:
        took = (1.3 if self.evicted else 1.0) * super().step()
        self.now += took - 1e-3
        self.evicted = False
        return took


def test_what_a_reading_evicts_is_brought_back_before_anything_is_timed() -> None:
    machine = Evicting()
    assert max(took for took, _ in watched(machine.speed_probe(), machine.step, 20)) == pytest.approx(1.3e-3)
    found = watched(machine.speed_probe(), machine.step, 20, resume=machine.step)
    assert [took for took, _ in found] == [pytest.approx(1e-3)] * 20


def test_few_steps_bring_it_back_and_the_fewer_the_longer_they_are() -> None:
    assert _untimed_steps(RESUMED / 10) == MOST_RESUMING
    assert _untimed_steps(RESUMED * 0.6) == 2
    assert _untimed_steps(STRETCH) == 1


def _untimed_steps(seconds: float) -> int:
    machine = Machine()
    resumed: list[float] = []

    def resume() -> None:
        machine.now += seconds
        resumed.append(seconds)

    watched(machine.speed_probe(), machine.step, 1, resume=resume)
    return len(resumed)


class Step:
    """A step of ``machine`` as ``measure_interleaved`` takes it."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine

    def prepare(self) -> None: ...

    def __call__(self) -> None:
        self.machine.step()


def test_the_median_of_a_step_is_that_at_the_usual_speed() -> None:
    machine = Machine(by_turns(undisturbed=0.3, disturbed=0.5))
    speed_probe = machine.speed_probe(usual=50e-6)
    (found,) = measure_interleaved([Step(machine)], clock=machine.clock, rounds=5, seconds=2.0, speed_probe=speed_probe)
    assert isinstance(found, Measurement)
    assert found.median == pytest.approx(1e-3)
    assert found.repeatability == pytest.approx(1.0)
    assert 0.2 < found.usual < 0.9
    assert found.anyhow >= found.median


def test_a_step_that_was_never_at_the_usual_speed_says_so() -> None:
    machine = Machine(lambda _: 1.8)
    speed_probe = machine.speed_probe(usual=50e-6)
    (found,) = measure_interleaved([Step(machine)], clock=machine.clock, rounds=3, seconds=0.1, speed_probe=speed_probe)
    assert isinstance(found, Measurement)
    assert found.usual == 0.0
    assert found.median == found.anyhow == pytest.approx(1.8e-3)
