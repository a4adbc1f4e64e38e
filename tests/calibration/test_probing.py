"""Probes are measured until the time is used, with rounds of fixed networks between them."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from placer.calibration.benchmarks.fixed import PACE, probes
from placer.calibration.benchmarks.probe import Probe
from placer.calibration.measuring.bench import RECORDER, WAITING, Bench
from placer.calibration.measuring.journal import KERNELS_LOST, Journal, KernelsLostError, StepObservation
from placer.calibration.measuring.recording import KernelRecorder
from placer.calibration.plan import Planner
from placer.calibration.probing import MOST_LOST, ROUND_SHARE, ROUNDS, Probing
from placer.calibration.progress import Progress

KEY = ("cuda", 2)
RATES = {"dispatch_seconds": 1e-6, "flops/float32": 1e9, "bytes_per_second": 1e9}


class Time:
    """A clock that stands still but for what probes take: a fixed network 0.03 seconds, any other a quarter."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    clock = Time()

    def measure_whole(self: Bench, probe: Probe) -> StepObservation:
        clock.now += 0.03
        return StepObservation(*KEY, PACE, probe.name, 1e-3, 0.0, {"step": 1.0}, ())

    monkeypatch.setattr(Bench, "measure_whole", measure_whole)
    monkeypatch.setattr("placer.calibration.measuring.bench.check", lambda device: None)
    monkeypatch.setattr("placer.calibration.measuring.bench.release", lambda device: None)
    return clock


def probing(journal: Journal, time: Time, seconds: float) -> Probing:
    bench = Bench(*KEY, kernels=KernelRecorder(sees=True), clock=time)
    return Probing(bench, Planner(RATES, seed=0, longest_step=0.01), journal, Progress(), seconds)


@pytest.mark.parametrize(
    ("lost", "seconds", "timer", "failures"),
    [
        (lambda n: n % 3 == 0, 8.0, RECORDER, None),  # now and then
        (lambda n: n > 3, 8.0, WAITING, MOST_LOST),  # given up, and what it showed is forgotten
        (lambda n: n > 15, 60.0, RECORDER, MOST_LOST),  # after enough: what it showed is kept, and the device is done
    ],
)
def test_a_recorder_that_loses_kernels(
    lost: Callable[[int], bool],
    seconds: float,
    timer: str,
    failures: int | None,
    time: Time,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    numbers = itertools.count(1)

    def measure(self: Bench, probe: Probe, *, seconds: float) -> StepObservation:
        time.now += 0.25
        if self.timer == RECORDER and lost(next(numbers)):
            self.lost += 1
            raise KernelsLostError
        self.lost = 0
        return StepObservation(*KEY, "matmul", "p", 1e-3, 0.0, {"step": 1.0}, ())

    monkeypatch.setattr(Bench, "measure", measure)
    journal = Journal(tmp_path / "p.journal", {})
    journal.use_timer(*KEY, RECORDER)
    run = probing(journal, time, seconds)
    run.run()
    assert (run.bench.timer, journal.timers[KEY]) == (timer, timer)
    assert {failure.reason for failure in journal.failures} == {KERNELS_LOST}
    assert failures is None or len(journal.failures) == failures
    again = Journal(journal.path, {})
    assert len(again.observations) == len(journal.observations) > 3


@pytest.mark.parametrize("runs", [1, 3])
def test_fixed_networks_are_timed_at_the_start_in_the_middle_and_near_the_end(
    runs: int, time: Time, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However often the calibration is interrupted."""

    def measure(self: Bench, probe: Probe, *, seconds: float) -> StepObservation:
        time.now += 0.25
        return StepObservation(*KEY, "matmul", "p", 1e-3, 0.0, {"step": 1.0}, ())

    monkeypatch.setattr(Bench, "measure", measure)
    for number in range(1, runs + 1):
        run = probing(Journal(tmp_path / "p.journal", {}), time, 12.0)
        run.deadline = 12.0 * number / runs
        run.run()
    steps = Journal(tmp_path / "p.journal", {}).of(*KEY)
    assert sum(step.family == PACE for step in steps) == len(ROUNDS) * len(probes())
    assert steps[0].family == PACE != steps[-1].family


def test_a_round_takes_no_more_than_its_share(time: Time, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Bench, "measure", lambda self, probe, *, seconds: None)
    run = probing(Journal(tmp_path / "p.journal", {}), time, 1.0)
    run.deadline = 0.01
    run.run()
    assert 0 < len(run.journal.observations) < len(probes())
    assert time.now < ROUND_SHARE + 0.06


def test_a_slow_machine_is_measured_on_by_the_next_run(
    time: Time, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measure(self: Bench, probe: Probe, *, seconds: float) -> StepObservation:
        time.now += 20.0
        return StepObservation(*KEY, "matmul", "p", 1e-3, 0.0, {"step": 1.0}, ())

    monkeypatch.setattr(Bench, "measure", measure)
    counts = []
    for _ in range(5):
        run = probing(Journal(tmp_path / "p.journal", {}), time, 5.0)
        run.run()
        counts.append(sum(step.family != PACE for step in run.journal.observations))
    assert counts == [1, 2, 3, 4, 5]
