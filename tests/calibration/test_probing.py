"""Probes are measured until the time is used, and the recorder is given up only where it has lost them all."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from placer.calibration import probing
from placer.calibration.benchmarks.probe import Probe
from placer.calibration.measuring.bench import RECORDER, Bench
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


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, journal: Journal) -> Callable[..., Bench]:
    """Measures for some seconds on a bench whose ``n``-th probe loses its kernels where ``lost(n)`` says so."""
    monkeypatch.setattr("placer.calibration.measuring.bench.check", lambda device: None)
    monkeypatch.setattr("placer.calibration.measuring.bench.release", lambda device: None)

    def measured(lost: Callable[[int], bool], seconds: float = 8.0) -> Bench:
        count = 0

        def measure(self: Bench, probe: Probe, *, seconds: float) -> StepObservation:
            nonlocal count
            count += 1
            if self.timer == RECORDER and lost(count):
                self.lost += 1
                raise KernelsLostError
            self.lost = 0
            return SEEN

        monkeypatch.setattr(Bench, "measure", measure)
        bench = Bench("cuda", 2, kernels=KernelRecorder(sees=True))
        planner = Planner(RATES, seed=0, longest_step=0.01)
        Probing(bench, planner, journal, Progress(), seconds, Time()).run()
        return bench

    return measured


def test_probes_that_lose_their_kernels_now_and_then_are_failures(run: Callable[..., Bench], journal: Journal) -> None:
    assert run(lambda n: n % 3 == 0).timer == RECORDER
    assert {f.reason for f in journal.failures} == {KERNELS_LOST}
    assert len(journal.observations) > len(journal.failures)
    assert journal.timers == {("cuda", 2): RECORDER}


def test_a_recorder_that_shows_nothing_is_given_up_and_what_it_showed_forgotten(
    run: Callable[..., Bench], journal: Journal
) -> None:
    bench = run(lambda n: n > 3)
    assert (bench.timer, journal.timers["cuda", 2]) == ("waiting", "waiting")
    assert len(journal.failures) == MOST_LOST
    assert len(Journal(journal.path, {}).observations) == len(journal.observations) > 3


def test_a_recorder_that_stops_after_enough_ends_the_device(run: Callable[..., Bench], journal: Journal) -> None:
    bench = run(lambda n: n > 15, seconds=60.0)
    assert bench.timer == RECORDER
    assert len(journal.observations) == 15
    assert len(journal.failures) == MOST_LOST


def test_a_probe_at_a_low_clock_is_thrown_away(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    megahertz = itertools.chain([1980.0] * 12, [345.0], itertools.repeat(1980.0))
    time = Time()
    monkeypatch.setattr(probing.time, "perf_counter", time)
    monkeypatch.setattr(Bench, "measure", lambda self, probe, *, seconds: SEEN)
    watch = ClockWatch("cuda", time, lambda: {"sm_mhz": next(megahertz)})
    bench = Bench("cuda", 2, kernels=KernelRecorder(sees=True))
    Probing(bench, Planner(RATES, seed=0, longest_step=0.01), journal, Progress(), 20.0, time, watch).run()
    clocks = [line for line in journal.path.read_text().splitlines() if '"clocks"' in line]
    assert len(clocks) == len(journal.observations) > 12
    assert not any("345" in line for line in clocks)


def test_lost_kernels_are_told_from_a_step_without_any(monkeypatch: pytest.MonkeyPatch) -> None:
    """Views launch nothing; a layer does."""
    bench = Bench("cpu", torch.get_num_threads(), kernels=KernelRecorder(sees=True))
    monkeypatch.setattr("placer.calibration.measuring.bench.synchronizer", lambda device: lambda: None)

    def probe(module: nn.Module) -> Probe:
        return Probe("matmul", "p", lambda: module, lambda: (torch.ones(2, 8),), "infer")

    with pytest.raises(KernelsLostError):
        bench.measure(probe(nn.Linear(8, 8)), seconds=0.01)
    assert bench.lost == 1
    bench.measure(probe(nn.Flatten(0)), seconds=0.01)
    assert bench.lost == 1
