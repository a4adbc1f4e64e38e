"""What recording costs is found from chains of several lengths, and no single moment decides it."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable

import pytest
import torch

from placer.calibration.measuring import recording
from placer.calibration.measuring.recording import Stopwatch
from placer.calibration.measuring.step_timing import RecorderCost


def test_what_recording_costs_is_found_from_chains_of_several_lengths(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the clock of the thread's own time, which other programs on the machine take nothing of."""
    monkeypatch.setattr(recording, "COST_ROUNDS", 2)
    found = recording.recorder_cost("cpu", clock=time.thread_time)
    assert found.per_step >= 0.0
    assert 0.0 < found.per_event <= recording.MOST_PER_EVENT


def test_one_disturbed_moment_does_not_decide_what_recording_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths = itertools.cycle((20.0, 80.0, 240.0))
    disturbed = iter([0.0, 3e-3, 0.0, 0.0, 0.0, -1e-3, *[0.0] * 100])
    monkeypatch.setattr(recording, "record", lambda *_, **__: [])
    monkeypatch.setattr(
        recording, "_added", lambda *_: (n := next(lengths), 0.0, 2e-5 + 7e-7 * n + next(disturbed))
    )
    assert recording.recorder_cost("cpu") == RecorderCost(pytest.approx(2e-5), pytest.approx(7e-7))


def test_launches_are_told_from_events_on_an_accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    """A chain's events launch kernels, views do not: what is left between two such chains is the launches'."""
    recorded: list[int] = []

    def record(timed: Callable[[], float], rounds: int, **_: object) -> list[object]:
        recorded.append(rounds)
        timed()
        return []

    def added(stopwatch: Stopwatch) -> tuple[float, float, float]:
        with torch.profiler.profile() as profile:
            stopwatch.step()
        counts = {e.key: e.count for e in profile.key_averages()}
        launches = sum(counts.get(op, 0) for op in ("aten::neg_", "aten::addmm", "aten::tanh", "aten::mm"))
        return sum(counts.values()), launches, 2e-5 + 7e-7 * sum(counts.values()) + 1.5e-6 * launches

    monkeypatch.setattr(recording, "record", record)
    monkeypatch.setattr(recording, "_added", added)
    found = recording.recorder_cost("cpu", synchronize=lambda: None)
    assert recorded == [1]
    assert found.per_launch == pytest.approx(1.5e-6)
    assert found.per_event == pytest.approx(7e-7)


def test_no_session_is_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    """A session without a kernel may end the recording of kernels in this process."""
    ops: list[int] = []
    monkeypatch.setattr(recording, "_added", lambda *_: (1.0, 0.0, 1e-6))
    monkeypatch.setattr(recording, "record", lambda timed, *_, **__: ops.append(_events(timed)) or [])
    recording.recorder_cost("cpu")
    assert ops
    assert min(ops) > 10


def _events(timed: Callable[[], float]) -> int:
    with torch.profiler.profile() as profile:
        timed()
    return len(profile.key_averages())
