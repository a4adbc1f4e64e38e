"""What is measured, in which order, for how long: every family, then where time teaches most, and fixed networks."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
from priced import elementwise

from placer.calibration.benchmarks import PROPOSERS
from placer.calibration.benchmarks.fixed import PACE, probes
from placer.calibration.benchmarks.probe import Probe
from placer.calibration.measuring import bench
from placer.calibration.measuring.bench import Bench
from placer.calibration.measuring.journal import Journal, OpObservation, StepObservation
from placer.calibration.measuring.recording import KernelRecorder
from placer.calibration.plan import Planner
from placer.calibration.probing import ROUNDS, Probing, one_of_each
from placer.calibration.progress import Progress

RATES = {"dispatch_seconds": 1e-6, "flops/float32": 5e10, "bytes_per_second": 1e10}
#: Two probes of each family are drawn before more of any.
ALL_TWICE = 2 * len(PROPOSERS)


def observation(family: str, factor: float = 1.0) -> StepObservation:
    added = elementwise("aten::add", 1e3, 12e3)
    op = OpObservation(added.family, added.op, added.dtype, added.features, 2e-6 * factor, 0.0, 0.0, 1)
    return StepObservation("cpu", 1, family, "x", 1e-3, 0.0, {}, (op,))


def drawn(probes: int, factors: tuple[float, ...] = (1.0,), failing: str = "") -> dict[str, int]:
    """Probes by family after so many, where elementwise residuals vary by ``factors``, and one family fails."""
    planner, counts = Planner(RATES, seed=0, seconds=60.0), dict.fromkeys(PROPOSERS, 0)
    for number in range(probes):
        family = planner.next().family
        counts[family] += 1
        factor = factors[number % len(factors)] if family == "elementwise" else 1.0
        planner.learn(family, None if family == failing else observation(family, factor), 0.01)
    return counts


def test_time_goes_where_it_teaches_most_and_not_to_what_fails() -> None:
    assert drawn(ALL_TWICE) == dict.fromkeys(PROPOSERS, 2)
    usual = drawn(100)
    assert usual["network"] > usual["pooling"] >= 2
    assert drawn(100, (math.exp(-3), math.exp(3)))["elementwise"] > usual["elementwise"]
    assert drawn(100, failing="recurrent")["recurrent"] < 25


KEY = ("cuda", 2)
Run = Callable[..., Probing]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Go on with the journal, on a clock that only probes move: the fixed networks take 0.03 seconds each."""
    now = 0.0

    def measure_whole(self: Bench, probe: Probe) -> StepObservation:
        nonlocal now
        now += 0.03
        return StepObservation(*KEY, PACE, probe.name, 1e-3, 0.0, {"step": 1.0}, ())

    def running(seconds: float, *, each: float = 0.25) -> Probing:
        """Probes take ``each`` seconds."""

        def measure(self: Bench, probe: Probe, *, seconds: float) -> StepObservation:
            nonlocal now
            now += each
            return StepObservation(*KEY, "matmul", "p", 1e-3, 0.0, {"step": 1.0}, ())

        monkeypatch.setattr(Bench, "measure", measure)
        found = Bench(*KEY, kernels=KernelRecorder(sees=True), clock=lambda: now)
        journal = Journal(tmp_path / "p.journal", {})
        probing = Probing(found, Planner(RATES, seed=0, seconds=10.0), journal, Progress(), seconds)
        probing.run()
        return probing

    monkeypatch.setattr(Bench, "measure_whole", measure_whole)
    monkeypatch.setattr(bench, "check", lambda device: None)
    monkeypatch.setattr(bench, "release", lambda device: None)
    return running


def test_fixed_networks_are_timed_at_the_start_in_the_middle_and_near_the_end(run: Run) -> None:
    steps = run(12.0).journal.of(*KEY)
    assert sum(step.family == PACE for step in steps) == len(ROUNDS) * len(probes())
    assert steps[0].family == PACE != steps[-1].family


def test_a_slow_machine_is_measured_on_by_the_next_run(run: Run) -> None:
    counts = []
    for _ in range(5):
        found = run(5.0, each=20.0)
        counts.append(sum(step.family != PACE for step in found.journal.observations))
    assert counts == [1, 2, 3, 4, 5]


def test_one_accelerator_of_each_name_and_memory_is_measured() -> None:
    devices = ("cuda", "cuda:1", "cuda:2", "cuda:3")
    kinds = (("H100", 80), ("L4", 24), ("H100", 80), ("H100", 40))
    listed = [
        {"device": device, "name": name, "memory_bytes": size}
        for device, (name, size) in zip(devices, kinds, strict=True)
    ]
    assert one_of_each(("cpu", *devices), listed) == ("cpu", "cuda", "cuda:1", "cuda:3")
    assert one_of_each(("cuda:2",), listed) == ("cuda:2",)
