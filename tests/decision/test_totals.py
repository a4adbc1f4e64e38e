"""Steps of several kinds added up."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from placer.decision import total
from placer.pricing import Prediction


def test_times_and_their_intervals_add_up(make_prediction: Callable[..., Prediction]) -> None:
    short, long = make_prediction(step=1e-3), make_prediction(step=5e-3, coverage=0.4, provenance="published")
    found = total("cpu", 2, [(10, short), (2.5, long)], repeats=4)
    assert found.step_seconds == pytest.approx(0.0225)
    assert (found.low, found.high) == pytest.approx((0.0225 / 1.2, 0.0225 * 1.2))
    assert sum(found.components.values()) == pytest.approx(found.step_seconds)
    assert found.coverage == pytest.approx((0.01 + 0.4 * 0.0125) / 0.0225)
    assert found.provenance == "published"
    assert found.total_seconds == pytest.approx(4 * 0.0225)


def test_what_is_paid_once_is_paid_once(make_prediction: Callable[..., Prediction]) -> None:
    first = make_prediction("cuda", one_time={"context": 2.0, "weights": 0.1}, peak_memory_bytes=10)
    second = make_prediction("cuda", one_time={"context": 2.0, "weights": 0.3}, peak_memory_bytes=30)
    shared, own = (total("cuda", 2, [(1, first), (1, second)], models=models) for models in ((0, 0), (0, 1)))
    assert shared.one_time_seconds == pytest.approx(2.3)
    assert own.one_time_seconds == pytest.approx(2.4)
    assert (shared.peak_memory_bytes, own.peak_memory_bytes) == (30, 40)


def test_each_part_is_compiled_and_the_compiler_loaded_once(make_prediction: Callable[..., Prediction]) -> None:
    step = make_prediction(one_time={"compiler": 6.0, "compilation": 2.0})
    assert total("cpu", 2, [(1, step), (1, step)]).one_time_seconds == pytest.approx(10.0)


def test_several_models_have_to_fit_together(make_prediction: Callable[..., Prediction]) -> None:
    step = make_prediction("cuda", peak_memory_bytes=30, available_memory_bytes=50)
    assert total("cuda", 2, [(1, step), (1, step)]).fits
    assert not total("cuda", 2, [(1, step), (1, step)], models=("a", "b")).fits


def test_nothing_has_no_total() -> None:
    with pytest.raises(ValueError, match="at least one part"):
        total("cpu", 2, [])
