"""A probe is measured and described; one that hangs, does not fit or lies about its time costs itself, not the run."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from forwards import module
from torch import nn

from placer.calibration.benchmarks.probe import Probe
from placer.calibration.measuring import recording
from placer.calibration.measuring.bench import Bench, attempt
from placer.calibration.measuring.journal import (
    HUNG,
    NO_NUMBER,
    NOT_MATCHED,
    TOO_LARGE,
    Journal,
    StepObservation,
    infeasible,
)
from placer.errors import TraceError

OBSERVED = StepObservation("cpu", 2, "network", "fine", 1e-3, 0.0, {"step": 1.0}, ())


class Stub:
    """A bench whose probes give this, or raise it."""

    device, threads = "cpu", 2

    def __init__(self, given: StepObservation | BaseException | None) -> None:
        self.given = given

    def measure(self, probe: Probe, *, seconds: float) -> StepObservation | None:
        if isinstance(self.given, BaseException):
            raise self.given
        return self.given


def probe(net: nn.Module | None = None) -> Probe:
    return Probe("matmul", "p", lambda: net or nn.Linear(2, 2), lambda: (torch.ones(1, 2),), "infer")


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "p.journal", {})


@pytest.fixture(scope="module")
def bench() -> Bench:
    """What recording costs is found in one round: four take seconds, and no test is about it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recording, "COST_ROUNDS", 1)
        found = Bench("cpu", torch.get_num_threads())
        assert found.recorder is not None
        return found


def network() -> nn.Module:
    """An op that is traced as a whole, one whose recorded name is another, views, and plain ops."""

    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.sequence(self.first(x))[0][:, -1])

    first = nn.Sequential(nn.Conv1d(3, 8, 3), nn.BatchNorm1d(8), nn.ReLU())
    return module(forward, first=first, sequence=nn.LSTM(14, 4), last=nn.Linear(4, 2))


def test_a_probe_is_measured_and_described(bench: Bench) -> None:
    one = Probe("network", "one", network, lambda: (torch.randn(4, 3, 16),), "train", "sgd")
    seen = bench.measure(one, seconds=0.02)
    assert (seen.device, seen.family, seen.name) == ("cpu", "network", "one")
    times = {op.op: op.seconds for op in seen.ops}
    assert {"aten::lstm_backward", "aten::convolution_backward", "optimizer::SGD"} < set(times)
    assert None not in times.values()  # every op of so plain a step is found, so its phases are known
    assert set(seen.gaps) == {"forward", "backward", "update"}
    product = next(op for op in seen.ops if op.op == "aten::addmm")
    assert product.work().flops == 2 * 4 * 4 * 2
    assert 0 < (product.seconds or 0.0) < seen.seconds


def sleeps(self: Any, x: torch.Tensor) -> torch.Tensor:
    if x.device.type != "meta":
        time.sleep(1000)
    return x


def asks_for_a_petabyte(self: Any, x: torch.Tensor) -> torch.Tensor:
    return x + torch.empty(2**47, 2, device=x.device).sum()


@pytest.mark.skipif(os.name != "posix", reason="alarms are POSIX's")
@pytest.mark.parametrize(("forward", "reason"), [(sleeps, HUNG), (asks_for_a_petabyte, TOO_LARGE)])
def test_what_hangs_or_does_not_fit_is_written_down_and_the_next_one_runs(
    bench: Bench, journal: Journal, forward: Callable[..., Any], reason: str
) -> None:
    assert attempt(bench, probe(module(forward)), seconds=0.01, journal=journal, limit=0.3) is None
    assert [(f.family, f.reason) for f in journal.failures] == [("matmul", reason)]
    told = infeasible(journal.failures, {("cpu", "matmul"): 100})  # one among many, all the same
    assert told == (f"1 probe of matmul on cpu left out: {reason}",)
    assert attempt(bench, probe(), seconds=0.01, journal=journal) is not None


LOST: list[tuple[StepObservation | BaseException | None, str]] = [
    (torch.OutOfMemoryError("cuda"), TOO_LARGE),
    (None, NOT_MATCHED),
    (replace(OBSERVED, seconds=float("nan")), NO_NUMBER),
    (NotImplementedError("no kernel\nwith a stack"), "NotImplementedError: no kernel"),
    (TypeError("Cannot convert a MPS Tensor to float64"), "TypeError: Cannot convert a MPS Tensor to float64"),
    (TraceError("not followed"), "TraceError: not followed"),
]


@pytest.mark.parametrize(("given", "reason"), LOST)
def test_what_cannot_be_measured_here_is_written_down_with_its_reason(
    given: StepObservation | BaseException | None, reason: str, journal: Journal
) -> None:
    assert attempt(Stub(given), probe(), seconds=1.0, journal=journal) is None
    assert [f.reason for f in Journal(journal.path, {}).failures] == [reason]
    assert infeasible(journal.failures) == (f"1 probe of matmul on cpu left out: {reason}",)
    assert attempt(Stub(OBSERVED), probe(), seconds=1.0, journal=journal) is OBSERVED


def test_a_probe_that_took_the_process_with_it_is_known_to_the_next_run(journal: Journal) -> None:
    with pytest.raises(KeyboardInterrupt):
        attempt(Stub(KeyboardInterrupt()), probe(), seconds=1.0, journal=journal)
    again = Journal(journal.path, {})
    assert [(f.family, f.name) for f in again.failures] == [("matmul", "p")]
    assert again.attempts("cpu", 2) == 1  # so that other probes are drawn
    assert infeasible(again.failures) == ()  # it may have been anything that ended the process
    assert len(Journal(journal.path, {}).failures) == 1
