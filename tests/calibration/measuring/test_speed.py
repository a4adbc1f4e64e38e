"""What is timed at another speed than the machine's usual one is told from the rest, on cores and on accelerators."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest
import torch

from placer.calibration.measuring import clocks
from placer.calibration.measuring.clocks import IDLE, POWER_LIMIT, WARM, ClockWatch, Load
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
from placer.errors import TimerError


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
        class Probe(SpeedProbe):
            """Its work on all cores would take none of the time that is made up, but much of the real one."""

            def _on_all_cores(self, exponentials: int, sums: int) -> None: ...

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
    while machine.now < 5.0:
        speed_probe.read()
        machine.now += LASTING if machine.now < 3.0 else 0.0
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
    assert is_alike(1.05, 1.0) is is_alike(1.0, 1.05) is True
    assert is_alike(1.2, 1.0) is is_alike(1.0, 1.2) is False
    assert (probed_cores("cpu", 8), probed_cores("cuda", 8)) == (8, 1)


def test_without_a_probe_everything_counts() -> None:
    answers = iter(range(5))
    found = watched(None, lambda: next(answers), 5)
    assert found == at_usual_speed(None, found) == [(n, 0.0) for n in range(5)]


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


class Evicting(Machine):
    """On which a reading evicts so much that the step after it takes 1.3 times as long."""

    evicted = False

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


@pytest.mark.parametrize(("seconds", "steps"), [(RESUMED / 10, MOST_RESUMING), (RESUMED * 0.6, 2), (STRETCH, 1)])
def test_few_steps_bring_it_back_and_the_fewer_the_longer_they_are(seconds: float, steps: int) -> None:
    machine = Machine()
    resumed: list[float] = []

    def resume() -> None:
        machine.now += seconds
        resumed.append(seconds)

    watched(machine.speed_probe(), machine.step, 1, resume=resume)
    assert len(resumed) == steps


class Work:
    """A step that takes what ``seconds`` says of its n-th call, on a clock shared with others; notes it in a log."""

    def __init__(self, name: str, machine: Machine, log: list[str], seconds: Callable[[int], float]) -> None:
        self.name, self.machine, self.log, self.seconds, self.calls = name, machine, log, seconds, 0

    def prepare(self) -> None:
        self.log.append(f"prepare {self.name}")

    def __call__(self) -> None:
        self.calls += 1
        self.log.append(self.name)
        self.machine.now += self.seconds(self.calls)


Interleaved = Callable[..., tuple[list[Measurement | Exception], list[str]]]


@pytest.fixture
def interleaved() -> Interleaved:
    """Measures steps that take what functions say; gives the results, and the order in which they ran."""

    def measured(*seconds: Callable[[int], float], **how: float) -> tuple[list[Measurement | Exception], list[str]]:
        machine, log = Machine(), list[str]()
        steps = [Work(name, machine, log, some) for name, some in zip("abc", seconds, strict=False)]
        return measure_interleaved(steps, clock=machine.clock, **how), log  # type: ignore[arg-type]

    return measured


def test_rounds_take_turns(interleaved: Interleaved) -> None:
    results, log = interleaved(lambda _: 1.0, lambda _: 2.0, rounds=5, seconds=1.0)
    assert results == [Measurement(s, s, s, 3, 1.0, anyhow=s) for s in (1.0, 2.0)]
    # A warm-up and an estimate of each, then three rounds of one step each, in turns.
    assert log == ["prepare a", "a", "a", "prepare b", "b", "b", *["prepare a", "a", "prepare b", "b"] * 3]


def test_time_is_spread_over_the_rounds(interleaved: Interleaved) -> None:
    (result,), log = interleaved(lambda _: 0.01, rounds=5, seconds=1.01)
    assert isinstance(result, Measurement)
    assert (result.count, result.median) == (100, pytest.approx(0.01))  # 5 rounds of 20 steps
    assert log.count("a") == 2 + 5 * (1 + 20)  # each round begins with an untimed step


def test_drift_shows_in_repeatability_not_in_one_cell_alone(interleaved: Interleaved) -> None:
    slow = [1.0, 1.0, 1.0, 1.0, 2.0, 2.0]
    results, _ = interleaved(*[lambda call: slow[call - 1]] * 2, rounds=4, seconds=4.5)
    assert results == [Measurement(1.5, 1.0, 2.0, 4, 2.0, anyhow=1.5)] * 2


def test_a_step_that_raises_keeps_its_error_and_spares_the_others(interleaved: Interleaved) -> None:
    def fails(call: int) -> float:
        if call > 3:
            raise MemoryError("no room")
        return 1.0

    (broken, fine, still), _ = interleaved(fails, lambda _: 1.0, lambda _: 0.0, rounds=3, seconds=1.0)
    assert isinstance(broken, MemoryError)
    assert isinstance(fine, Measurement)
    assert isinstance(still, TimerError)  # a clock that stands still is an error of the cell


def test_an_accelerator_is_waited_for_once_per_block() -> None:
    machine, log, queued = Machine(), list[str](), [0.0]

    class Issue(Work):
        def __call__(self) -> None:
            super().__call__()
            queued[0] += 0.0009

    def synchronize() -> None:
        log.append("w")
        machine.now += queued[0]
        queued[0] = 0.0

    step = Issue("a", machine, log, lambda _: 0.0001)
    (result,) = measure_interleaved([step], synchronize=synchronize, clock=machine.clock, rounds=3, seconds=0.03)
    assert isinstance(result, Measurement)
    assert (result.median, result.count) == (pytest.approx(0.001), 30)
    assert "waawwaaw" in "".join(log).replace("prepare a", "")  # blocks of two steps: 2 ms


@pytest.mark.parametrize(("slowed", "usual"), [(by_turns(0.3, 0.5), 0.5), (lambda _: 1.8, 0.0)])
def test_the_median_of_a_step_is_that_at_the_usual_speed(slowed: Callable[[float], float], usual: float) -> None:
    """A step that was never at it says so."""
    machine = Machine(slowed)
    speed_probe = machine.speed_probe(usual=50e-6)
    step = Work("a", machine, [], lambda _: 1e-3 * slowed(machine.now))
    (found,) = measure_interleaved([step], clock=machine.clock, rounds=5, seconds=2.0, speed_probe=speed_probe)
    assert isinstance(found, Measurement)
    assert found.usual == pytest.approx(usual, abs=0.35 if usual else 0.0)
    assert found.median == pytest.approx(1e-3 if usual else 1.8e-3)
    assert found.repeatability == pytest.approx(1.0)
    assert found.anyhow >= found.median


@pytest.mark.parametrize(
    ("everybody", "own", "wall", "disturbed"),
    [
        (0.0, 0.0, 1.0, False), (2.0, 2.0, 1.0, False),  # idle cores, and our own work
        (3.0, 2.0, 1.0, True), (0.2, 0.0, 1.0, True), (0.03, 0.01, 0.02, False),  # the last is a tick of the clock
    ],
)  # fmt: skip
def test_other_programs_on_the_cores_are_noticed(everybody: float, own: float, wall: float, disturbed: bool) -> None:
    before = Load(100.0, 10.0, 50.0)
    assert Load(100.0 + everybody, 10.0 + own, 50.0 + wall).disturbed_since(before) is disturbed
    first, second = Load.now(), Load.now()
    assert (second.everybody >= first.everybody, second.own >= first.own, second.wall > first.wall) == (True,) * 3


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


def test_what_was_noted_right_after_the_work_is_looked_at_once() -> None:
    seen = readings((1980.0, 0), (345.0, 1))
    watch = ClockWatch("cuda", Machine().clock, lambda: next(seen))
    watch.note()
    assert [watch.look()[0]["sm_mhz"] for _ in range(2)] == [1980.0, 345.0]


@pytest.mark.parametrize("known", [None, {}, {"power_watts": 3.0}])
def test_a_clock_that_nobody_knows_is_never_slow(known: dict[str, float] | None) -> None:
    watch = ClockWatch("cuda", Machine().clock, lambda: known)
    assert [watch.look() for _ in range(9)] == [(known or {}, False)] * 9
    assert ClockWatch("sim", Machine().clock).look() == ({}, False)


def test_keeping_busy_takes_the_time_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine()

    def wait() -> None:
        machine.now += 0.004

    monkeypatch.setattr(clocks, "synchronizer", lambda device: wait)
    clocks.keep_busy("cpu", 0.01, machine.clock, rows=4)
    assert machine.now == pytest.approx(0.012)
