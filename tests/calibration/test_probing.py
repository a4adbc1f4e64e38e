"""Probes are measured until the time is used, and the recorder is given up only where it has lost them all."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from pathlib import Path

import pytest

from placer.calibration import probing
from placer.calibration.benchmarks.probe import Probe
from placer.calibration.measuring.bench import RECORDER, WAITING, Bench
from placer.calibration.measuring.clocks import ClockWatch
from placer.calibration.measuring.journal import KERNELS_LOST, Journal, KernelsLostError, StepObservation
from placer.calibration.measuring.recording import KernelRecorder
from placer.calibration.plan import Planner
from placer.calibration.probing import MOST_LOST, Probing
from placer.calibration.progress import Progress

RATES = {"dispatch_seconds": 1e-6, "flops/float32": 1e9, "bytes_per_second": 1e9}
SEEN = StepObservation("cuda", 2, "matmul", "p", 1e-3, 0.0, {"step": 1.0}, ())


class Time:
    now = 0.0

    def __call__(self) -> float:
        self.now += 0.25
        return self.now


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    found = Journal(tmp_path / "p.journal", {})
    found.use_timer("cuda", 2, RECORDER)
    return found


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
    journal: Journal,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    numbers = itertools.count(1)

    def measure(self: Bench, probe: Probe, *, seconds: float) -> StepObservation:
        if self.timer == RECORDER and lost(next(numbers)):
            self.lost += 1
            raise KernelsLostError
        self.lost = 0
        return SEEN

    monkeypatch.setattr("placer.calibration.measuring.bench.check", lambda device: None)
    monkeypatch.setattr("placer.calibration.measuring.bench.release", lambda device: None)
    monkeypatch.setattr(Bench, "measure", measure)
    bench = Bench("cuda", 2, kernels=KernelRecorder(sees=True))
    Probing(bench, Planner(RATES, seed=0, longest_step=0.01), journal, Progress(), seconds, Time()).run()
    assert (bench.timer, journal.timers["cuda", 2]) == (timer, timer)
    assert {failure.reason for failure in journal.failures} == {KERNELS_LOST}
    assert failures is None or len(journal.failures) == failures
    again = Journal(journal.path, {})
    assert len(again.observations) == len(journal.observations) > 3


def test_a_probe_at_a_low_clock_is_thrown_away(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    megahertz = itertools.chain([1980.0] * 12, [345.0], itertools.repeat(1980.0))
    time = Time()
    monkeypatch.setattr(probing.time, "perf_counter", time)
    monkeypatch.setattr(Bench, "measure", lambda self, probe, *, seconds: SEEN)
    watch = ClockWatch("cuda", time, lambda: {"sm_mhz": next(megahertz)})
    bench = Bench("cuda", 2, kernels=KernelRecorder(sees=True))
    planner = Planner(RATES, seed=0, longest_step=0.01)
    Probing(bench, planner, journal, Progress(), math.inf, time, watch, deadline=20.0).run()
    clocks = [line for line in journal.path.read_text().splitlines() if '"clocks"' in line]
    assert len(clocks) == len(journal.observations) > 12
    assert not any("345" in line for line in clocks)
