"""A probe that hangs, does not fit or lies about its time costs itself, not the run."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from placer.calibration.benchmarks.probe import Probe
from placer.calibration.measuring import bench as attempts
from placer.calibration.measuring.bench import Bench, attempt
from placer.calibration.measuring.faults import BrokenDeviceError
from placer.calibration.measuring.journal import (
    HUNG,
    KERNELS_LOST,
    NOT_MATCHED,
    TOO_LARGE,
    Failure,
    Journal,
    StepObservation,
    infeasible,
)
from placer.errors import TimerError, TraceError

pytestmark = pytest.mark.usefixtures("one_round")
OBSERVED = StepObservation("cpu", 2, "network", "fine", 1e-3, 0.0, {"step": 1.0}, ())


class Stub:
    """A bench whose probes do what the test says."""

    device, threads = "cpu", 2

    def __init__(self, run: Callable[[], StepObservation | None]) -> None:
        self.run = run

    def measure(self, probe: Probe, *, seconds: float) -> StepObservation | None:
        return self.run()


def probe(module: nn.Module | None = None) -> Probe:
    return Probe("matmul", "p", lambda: module or nn.Linear(2, 2), lambda: (torch.ones(1, 2),), "infer")


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "p.journal", {})


def raising(error: BaseException) -> Callable[[], StepObservation | None]:
    def run() -> StepObservation | None:
        raise error

    return run


class Sleeps(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.device.type != "meta":
            time.sleep(1000)
        return x


class Huge(nn.Module):
    """Asks for a petabyte, as a real allocator refuses it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.empty(2**47, 2, device=x.device).sum()


@pytest.mark.skipif(os.name != "posix", reason="alarms are POSIX's")
def test_a_hung_benchmark_is_written_down_and_the_next_one_runs(journal: Journal) -> None:
    bench = Bench("cpu", torch.get_num_threads())
    assert attempt(bench, probe(Sleeps()), seconds=0.01, journal=journal, limit=0.3) is None
    assert [(f.family, f.reason) for f in journal.failures] == [("matmul", HUNG)]
    assert attempt(bench, probe(), seconds=0.01, journal=journal) is not None


def test_out_of_memory_is_written_down_and_the_next_one_runs(journal: Journal) -> None:
    bench = Bench("cpu", torch.get_num_threads())
    assert attempt(bench, probe(Huge()), seconds=0.01, journal=journal) is None
    assert [f.reason for f in journal.failures] == [TOO_LARGE]
    assert attempt(bench, probe(), seconds=0.01, journal=journal) is not None


SHORT = [MemoryError(), torch.OutOfMemoryError("cuda"), RuntimeError("can't allocate memory")]


@pytest.mark.parametrize("error", SHORT)
def test_every_way_of_saying_it(error: Exception, journal: Journal) -> None:
    assert attempt(Stub(raising(error)), probe(), seconds=1.0, journal=journal) is None
    assert infeasible(journal.failures) == ("1 probe of matmul on cpu left out: it did not fit in memory",)


MISSING = [
    RuntimeError("not implemented for 'Half'"), NotImplementedError("no kernel\nwith a stack"), ValueError("no kernel"),
    TypeError("Cannot convert a MPS Tensor to float64"), TraceError("not followed"),
]  # fmt: skip


@pytest.mark.parametrize("error", MISSING)
def test_what_does_not_exist_here_is_written_down_with_its_reason(error: Exception, journal: Journal) -> None:
    assert attempt(Stub(raising(error)), probe(), seconds=1.0, journal=journal) is None
    (failure,) = Journal(journal.path, {}).failures
    assert failure.reason == f"{type(error).__name__}: {str(error).splitlines()[0]}"


def test_a_probe_whose_ops_were_not_found_is_written_down(journal: Journal) -> None:
    assert attempt(Stub(lambda: None), probe(), seconds=1.0, journal=journal) is None
    assert [f.reason for f in journal.failures] == [NOT_MATCHED]


def test_a_family_that_lacks_many_probes_is_told_with_the_most_frequent_reason() -> None:
    def failures(family: str, reason: str, count: int) -> list[Failure]:
        return [Failure("cuda", 2, family, "p", reason)] * count

    some = [
        *failures("indexing", "RuntimeError: two devices", 12), *failures("indexing", "TypeError: float64", 1),
        *failures("matmul", "RuntimeError: no Half", 2), *failures("matmul", KERNELS_LOST, 1),
    ]  # fmt: skip
    assert infeasible(some, {("cuda", "indexing"): 30, ("cuda", "matmul"): 40}) == (
        f"1 probe of matmul on cuda left out: {KERNELS_LOST}",
        "13 probes of indexing on cuda left out: RuntimeError: two devices (and 1 other reason)",
    )


def test_an_accelerator_is_asked_whether_it_still_works_after_a_failure(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a sticky error every later probe would fail, to the end of the budget."""

    class OnGPU(Stub):
        device = "cuda"

    asked: list[str] = []
    monkeypatch.setattr(attempts, "check", asked.append)
    monkeypatch.setattr(attempts, "release", lambda device: None)
    bench = OnGPU(raising(RuntimeError("CUDA error: an illegal memory access was encountered")))
    assert attempt(bench, probe(), seconds=1.0, journal=journal) is None
    assert asked == ["cuda"]

    def broken(device: str) -> None:
        raise BrokenDeviceError("AcceleratorError: an illegal memory access was encountered")

    monkeypatch.setattr(attempts, "check", broken)
    with pytest.raises(BrokenDeviceError, match="illegal memory access"):
        attempt(bench, probe(), seconds=1.0, journal=journal)
    assert len(journal.failures) == 2


FATAL = [TimerError("the clock stands still"), KeyboardInterrupt(), AssertionError("a defect")]


@pytest.mark.parametrize("error", FATAL)
def test_what_no_other_probe_would_survive_goes_through(error: BaseException, journal: Journal) -> None:
    with pytest.raises(type(error)):
        attempt(Stub(raising(error)), probe(), seconds=1.0, journal=journal)


@pytest.mark.parametrize("time_seen", [float("nan"), float("inf")])
def test_a_time_that_is_no_number_is_not_kept(time_seen: float, journal: Journal) -> None:
    lying = Stub(lambda: replace(OBSERVED, seconds=time_seen))
    assert attempt(lying, probe(), seconds=1.0, journal=journal) is None
    assert attempt(Stub(lambda: OBSERVED), probe(), seconds=1.0, journal=journal) is OBSERVED


def test_a_probe_that_took_the_process_with_it_is_known_to_the_next_run(journal: Journal) -> None:
    with pytest.raises(KeyboardInterrupt):
        attempt(Stub(raising(KeyboardInterrupt())), probe(), seconds=1.0, journal=journal)
    again = Journal(journal.path, {})
    assert [(f.family, f.name) for f in again.failures] == [("matmul", "p")]
    assert again.attempts("cpu", 2) == 1  # so that other probes are drawn
    assert again.attempts("cpu", 1) == 0
    assert infeasible(again.failures) == ()  # it may have been anything that ended the process
    assert len(Journal(journal.path, {}).failures) == 1
