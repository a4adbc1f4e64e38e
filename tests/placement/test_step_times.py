"""Real step times: what is kept of them, and what reaches the history."""
from __future__ import annotations

import pytest

from placer.decision import history, measured
from placer.placement import step_times as module
from placer.placement.step_times import StepTimes


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_step_records_real_times_after_warm_up() -> None:
    clock = Clock()
    times = StepTimes("cpu", clock=clock)
    assert times.median() is None
    for seconds in (9.0, 9.0, 9.0, 1.0, 2.0, 3.0):
        with times.step():
            clock.now += seconds
    assert list(times.recent) == [1.0, 2.0, 3.0]
    assert times.median() == 2.0
    assert times.seen == 6


def test_step_times_reach_the_history_at_a_low_rate() -> None:
    clock = Clock()
    times = StepTimes("cpu", predicted_seconds=0.4, clock=clock, record=measured.record)
    for _ in range(203):
        with times.step():
            clock.now += 0.5
    entries = [entry for entry in history.last(100) if entry["kind"] == "steps"]
    assert len(entries) == 4  # 100 seconds: after 1 s, then every 30 s
    assert (entries[0]["step_seconds"], entries[0]["predicted_seconds"]) == (0.5, 0.4)


def test_a_step_that_raises_is_not_recorded() -> None:
    times = StepTimes("cpu", clock=Clock())
    for _ in range(5):
        with pytest.raises(RuntimeError, match="mine"), times.step():
            raise RuntimeError("mine")
    assert len(times.recent) == 0


def test_an_accelerator_is_waited_for_rarely(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[str] = []
    monkeypatch.setattr(module, "synchronize", waits.append)
    times = StepTimes("cuda", clock=Clock())
    for _ in range(2 * module.SYNC_EVERY):
        with times.step():
            pass
    assert len(times.recent) == 2
    assert len(waits) == 4


def test_what_is_recorded_holds_nine_steps_in_ten() -> None:
    clock, written = Clock(), list[dict[str, object]]()
    times = StepTimes("cpu", 0.5, clock, workload="key", threads=2, record=written.append)
    for seconds in (9.0, 9.0, 9.0, *range(21)):
        with times.step():
            clock.now += seconds
    times._record()
    assert written[-1] == {
        "workload": "key", "device": "cpu", "threads": 2, "step_seconds": 10, "low": 1, "high": 19,
        "predicted_seconds": 0.5, "steps_timed": 21, "steps_seen": 24,
    }  # fmt: skip


def test_one_step_is_its_own_interval() -> None:
    clock, written = Clock(), list[dict[str, object]]()
    times = StepTimes("cpu", clock=clock, record=written.append)
    times.add(2.0, clock.now)
    times._record()
    assert [written[-1][name] for name in ("step_seconds", "low", "high", "steps_timed")] == [2.0, 2.0, 2.0, 1]


def test_writing_begins_after_a_second_and_goes_on_at_intervals() -> None:
    written: list[dict[str, object]] = []
    times = StepTimes("cpu", record=written.append)
    lengths = []
    for now in (100.0, 100.9, 101.0, 130.9, 131.0, 131.5):
        times.add(0.1, now)
        lengths.append(len(written))
    assert lengths == [0, 0, 1, 1, 2, 2]


def test_a_step_on_an_accelerator_is_waited_for_before_and_after(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    monkeypatch.setattr(module, "synchronize", lambda device: done.append(f"wait for {device}"))
    times = StepTimes("cuda", clock=lambda: float(len(done)))
    for number in range(1, 2 * module.SYNC_EVERY + 1):
        with times.step():
            done.append("step")
        assert (done[-1] == "wait for cuda") is (number % module.SYNC_EVERY == 0)
    assert list(times.recent) == [2.0, 2.0]
