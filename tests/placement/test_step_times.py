"""Real step times: what is kept of them, what reaches the history, and steps that leave their prediction for good."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest

from placer.errors import PlacerWarning
from placer.placement import step_times as module
from placer.placement.step_times import Drift, StepTimes
from placer.pricing import Prediction


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_steps_after_warm_up_are_recorded_and_what_holds_nine_in_ten_of_them() -> None:
    """A step that raises is not."""
    clock, written = Clock(), list[tuple[float, ...]]()
    times = StepTimes("cpu", clock, record=lambda *summary: written.append(summary))
    assert times.median() is None
    for seconds in (9.0, 9.0, 9.0, *range(21)):
        with times.step():
            clock.now += seconds
    with pytest.raises(RuntimeError, match="mine"), times.step():
        raise RuntimeError("mine")
    assert (list(times.recent), times.median(), times.seen) == ([*range(21)], 10, 25)
    times._record()
    assert written[-1] == (10, 1, 19, 21)


def test_the_history_is_written_after_a_second_and_then_every_half_minute() -> None:
    clock, written = Clock(), list[int]()
    times = StepTimes("cpu", clock, record=lambda *summary: written.append(summary[-1]))
    for _ in range(module.WARM_UP_STEPS + 70):
        with times.step():
            clock.now += 1.0
    assert written == [2, 32, 62]


def test_a_step_on_an_accelerator_is_waited_for_before_and_after(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    monkeypatch.setattr(module, "synchronize", lambda device: done.append(f"wait for {device}"))
    times = StepTimes("cuda", clock=lambda: float(len(done)))
    for number in range(1, 2 * module.SYNC_EVERY + 1):
        with times.step():
            done.append("step")
        assert (done[-1] == "wait for cuda") is (number % module.SYNC_EVERY == 0)
    assert list(times.recent) == [2.0, 2.0]


Make = Callable[..., Prediction]


def messages(watch: Drift, seconds: list[float], pause: float = 1.0) -> list[str]:
    """What is said of steps that long, with a pause between them."""
    now, said = 100.0, []
    for step in seconds:
        now += step + pause
        if text := watch.add(step, now):
            said.append(text)
    return said


def test_the_device_that_would_have_been_faster_is_named(make_prediction: Make) -> None:
    predictions = {"cpu": make_prediction("cpu", 1e-3), "cuda": make_prediction("cuda", 2e-3)}
    (said,) = messages(Drift("cpu", predictions), [3e-3] * 60)
    assert said.startswith("steps take 3.00 ms on cpu and were predicted to take 833 µs to 1.20 ms: cuda would have")
    assert "with 2.00 ms by its prediction" in said
    (said,) = messages(Drift("cpu", {"cpu": predictions["cpu"]}), [3e-3] * 60)
    assert "the machine has changed since calibration" in said
    assert said.endswith("run: placer calibrate")


def test_windows_are_counted_from_the_last_good_one_on(make_prediction: Make) -> None:
    predictions = {"cpu": make_prediction("cpu", 1e-3)}
    slow, good = [3e-3] * module.WINDOW, [1e-3] * module.WINDOW
    enough = slow * module.WINDOWS
    assert messages(Drift("cpu", predictions), [*slow, *slow, *good] * 20) == []
    assert messages(Drift("cpu", predictions), [3e-3] * 1000, pause=0.0) == []  # many steps, but three seconds
    assert len(messages(Drift("cpu", predictions), [*good, *enough])) == 1
    assert messages(Drift("cpu", predictions), [*good, *enough[:-1]]) == []
    assert messages(Drift("cpu", predictions), [*slow, *good, *enough[:-1]]) == []
    # And for SECONDS from the first slow step to the end of the last one.
    pause = module.SECONDS / (len(enough) - 1)
    assert len(messages(Drift("cpu", predictions), [*good, *enough], pause=pause)) == 1
    assert messages(Drift("cpu", predictions), [*good, *enough], pause=0.99 * pause) == []


def test_faster_steps_and_small_excesses_are_fine(make_prediction: Make) -> None:
    predictions = {"cpu": make_prediction("cpu", 1e-3, low=0.99e-3, high=1.01e-3)}
    assert messages(Drift("cpu", predictions), [1e-4] * 200) == []
    assert messages(Drift("cpu", predictions), [1.2e-3] * 200) == []


def test_a_run_warns_once(make_prediction: Make) -> None:
    now = [0.0]
    predictions = {"cpu": make_prediction("cpu", 1e-3)}
    times = StepTimes("cpu", lambda: now[0], drift=Drift("cpu", predictions))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(500):
            with times.step():
                now[0] += 1.0
    assert [w.category for w in caught] == [PlacerWarning]
    assert caught[0].filename == __file__
