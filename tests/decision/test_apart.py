"""Parts of a job on different devices: the fastest way is found, and what passes between them is counted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from placer.decision.apart import best_apart
from placer.decision.comparison import PricedPart
from placer.pricing import Prediction
from placer.profile.profile import DeviceFit

RATES = {
    f"copy/{direction}/pageable/{what}": value
    for direction in ("h2d", "d2h")
    for what, value in (("seconds_per_tensor", 1e-5), ("bytes_per_second", 1e9))
}
GPU = DeviceFit("cuda", 2, RATES, {}, {}, {})


@pytest.fixture
def step(make_prediction: Callable[..., Prediction]) -> Callable[..., PricedPart]:
    def make(name: str, cpu: float, cuda: float, *, count: float = 1, model: int = 0, mode: str = "train",
             placeable: bool = True, **values: Any) -> PricedPart:  # fmt: skip
        def predicted(device: str, seconds: float) -> Prediction:
            found = make_prediction(device, seconds, **values)
            trace = replace(found.priced.trace, mode=mode)  # type: ignore[arg-type]
            return replace(found, priced=replace(found.priced, trace=trace, fit=GPU if device == "cuda" else None))

        both: Mapping[str, Prediction] = {"cpu": predicted("cpu", cpu), "cuda": predicted("cuda", cuda)}
        return PricedPart(name, count, both, {}, model, placeable)

    return make


def test_each_part_goes_where_it_is_fastest_and_weights_follow(step: Callable[..., PricedPart]) -> None:
    steps = [step("rollout", 1e-4, 1e-3, count=100, mode="infer"), step("update", 0.1, 0.01)]
    found = best_apart(steps)
    assert found is not None
    assert found.devices == {"rollout": "cpu", "update": "cuda"}
    assert found.exchange_bytes == 64  # one weight of 4 x 4 float32
    assert found.exchange_seconds == pytest.approx(1e-5 + 64e-9)
    assert found.step_seconds == pytest.approx(0.01 + 0.01 + found.exchange_seconds)


def test_models_without_a_common_weight_exchange_nothing(step: Callable[..., PricedPart]) -> None:
    found = best_apart([step("a", 1e-3, 1e-2, model=1), step("b", 1e-2, 1e-3, model=2)])
    assert found is not None
    assert (found.exchange_seconds, found.exchange_bytes) == (0.0, 0)


def test_parts_that_train_one_model_stay_together(step: Callable[..., PricedPart]) -> None:
    assert best_apart([step("a", 1e-3, 1e-2), step("b", 1e-2, 1e-3)]) is None


def test_a_step_function_cannot_run_a_copy(step: Callable[..., PricedPart]) -> None:
    steps = [step("rollout", 1e-4, 1e-3, count=100, mode="infer", placeable=False), step("update", 0.1, 0.01)]
    assert best_apart(steps) is not None
    assert best_apart(steps, placeable=True) is None


def test_a_part_that_does_not_fit_stays_away(step: Callable[..., PricedPart]) -> None:
    steps = [step("a", 1e-3, 1e-4, model=1, fits=False), step("b", 1e-3, 1e-4, model=2)]
    assert best_apart(steps) is None


def test_one_time_costs_count_in_a_short_run(step: Callable[..., PricedPart]) -> None:
    found = best_apart(
        [step("a", 1e-3, 1e-2, model=1), step("b", 1e-2, 1e-3, model=2, one_time={"context": 2.0})], 3
    )
    assert found is not None
    assert found.seconds(3) == pytest.approx(found.one_time_seconds + 3 * found.step_seconds)
    assert found.one_time_seconds >= 2.0


def test_many_parts_are_shared_out_quickly(step: Callable[..., PricedPart]) -> None:
    steps = [step(f"p{i}", 1e-3 * (1 + i % 2), 1e-3 * (2 - i % 2), model=i) for i in range(30)]
    found = best_apart(steps)
    assert found is not None
    assert found.step_seconds == pytest.approx(30e-3)


def test_two_models_have_to_fit_on_a_device_together(step: Callable[..., PricedPart]) -> None:
    room: dict[str, Any] = {"peak_memory_bytes": 10, "available_memory_bytes": 16}
    steps = [step("a", 1e-2, 1e-3, model=1, **room), step("b", 1e-2, 1e-3, model=2, **room),
             step("c", 1e-3, 1e-2, model=3, peak_memory_bytes=1)]  # fmt: skip
    found = best_apart(steps)
    assert found is not None
    assert sorted(found.devices.values()) == ["cpu", "cpu", "cuda"]


def test_a_part_that_only_one_device_can_run_has_its_own_devices(step: Callable[..., PricedPart]) -> None:
    quantized = step("quantized", 1e-2, 1e-3, model=1)
    quantized = replace(quantized, predictions={"cpu": quantized.predictions["cpu"]})
    found = best_apart([quantized, step("training", 1e-1, 1e-3, model=2)])
    assert found is not None
    assert found.devices == {"quantized": "cpu", "training": "cuda"}


def test_devices_of_two_machines_are_not_mixed(step: Callable[..., PricedPart]) -> None:
    def on(found: PricedPart, name: str, device: str) -> PricedPart:
        prediction = replace(found.predictions[device], device=name)
        return replace(found, predictions={**found.predictions, name: prediction})

    steps = [step("a", 1e-2, 2e-2, model=1), step("b", 2e-2, 1e-2, model=2)]
    steps = [on(on(one, "cpu@other", "cpu"), "cuda@other", "cuda") for one in steps]
    found = best_apart(steps)
    assert found is not None
    assert {name.partition("@")[2] for name in found.devices.values()} in ({""}, {"other"})
