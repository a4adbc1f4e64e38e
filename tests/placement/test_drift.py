"""Steps that leave the predicted interval for good are one warning; those that return, or are faster, are none."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest

from placer.errors import PlacerWarning
from placer.placement import step_times
from placer.placement.step_times import Drift, StepTimes
from placer.pricing.prediction import Prediction

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
    said = messages(Drift("cpu", predictions), [3e-3] * 60)
    assert len(said) == 1
    assert said[0].startswith("steps take 3.00 ms on cpu and were predicted to take 833 µs to 1.20 ms: cuda would have")
    assert "with 2.00 ms by its prediction" in said[0]


def test_without_a_faster_device_the_machine_has_changed(make_prediction: Make) -> None:
    predictions = {"cpu": make_prediction("cpu", 1e-3), "cuda": make_prediction("cuda", 2e-3, fits=False)}
    (said,) = messages(Drift("cpu", predictions), [3e-3] * 60)
    assert "the machine has changed since calibration" in said
    assert said.endswith("run: placer calibrate")


def test_a_slow_moment_is_not_for_good(make_prediction: Make) -> None:
    predictions = {"cpu": make_prediction("cpu", 1e-3)}
    slow, good = [3e-3] * step_times.WINDOW, [1e-3] * step_times.WINDOW
    assert messages(Drift("cpu", predictions), [*slow, *slow, *good] * 20) == []
    assert messages(Drift("cpu", predictions), [3e-3] * 1000, pause=0.0) == []  # many steps, but three seconds


def test_windows_are_counted_from_the_last_good_one_on(make_prediction: Make) -> None:
    predictions = {"cpu": make_prediction("cpu", 1e-3)}
    slow, good = [3e-3] * step_times.WINDOW, [1e-3] * step_times.WINDOW
    enough = slow * step_times.WINDOWS
    assert len(messages(Drift("cpu", predictions), [*good, *enough])) == 1
    assert messages(Drift("cpu", predictions), [*good, *enough[:-1]]) == []
    assert messages(Drift("cpu", predictions), [*slow, *good, *enough[:-1]]) == []
    # And for SECONDS from the first slow step to the end of the last one.
    pause = step_times.SECONDS / (len(enough) - 1)
    assert len(messages(Drift("cpu", predictions), [*good, *enough], pause=pause)) == 1
    assert messages(Drift("cpu", predictions), [*good, *enough], pause=0.99 * pause) == []


def test_faster_steps_and_small_excesses_are_fine(make_prediction: Make) -> None:
    predictions = {"cpu": make_prediction("cpu", 1e-3, low=0.99e-3, high=1.01e-3)}
    assert messages(Drift("cpu", predictions), [1e-4] * 200) == []
    assert messages(Drift("cpu", predictions), [1.2e-3] * 200) == []


def test_a_run_warns_once(make_prediction: Make) -> None:
    now = [0.0]
    predictions = {"cpu": make_prediction("cpu", 1e-3)}
    times = StepTimes("cpu", 1e-3, lambda: now[0], drift=Drift("cpu", predictions))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(500):
            with times.step():
                now[0] += 1.0
    assert [w.category for w in caught] == [PlacerWarning]
    assert caught[0].filename == __file__


@pytest.mark.parametrize("device", ["cpu"])
def test_steps_as_predicted_say_nothing(make_prediction: Make, device: str) -> None:
    assert messages(Drift(device, {device: make_prediction(device, 1.0)}), [1.0] * 500) == []
