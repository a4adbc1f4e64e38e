"""Money and energy in the place of time: what a second costs on each device decides."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from placer.decision.decision import break_even_steps, decide
from placer.decision.objective import TIME, check_known, objective_of
from placer.errors import PlacerError
from placer.pricing.prediction import Prediction

Make = Callable[..., Prediction]


@pytest.fixture
def two(make_prediction: Make) -> dict[str, Prediction]:
    """A GPU 17 % faster than the CPU, that draws four times the power."""
    cpu = replace(make_prediction("cpu", 1.17e-3), watts=50.0)
    return {"cpu": cpu, "cuda": replace(make_prediction("cuda", 1e-3), watts=200.0)}


def test_the_faster_device_may_cost_more(two: dict[str, Prediction]) -> None:
    cost = objective_of("cost", {"cpu": 0.5, "cuda": 2.925})
    assert decide(two, None).device == "cuda"
    decision = decide(two, None, cost)
    assert (decision.device, decision.objective) == ("cpu", "cost")
    assert decision.speedup == pytest.approx(2.925 / 0.5 / 1.17)
    assert decision.reason == (
        "cpu: a million steps cost $0.163 there and $0.812 on cuda, 17% faster for 5.0× the money"
    )


def test_energy_is_watts_times_seconds(two: dict[str, Prediction]) -> None:
    decision = decide(two, 1000, objective_of("energy"))
    assert decision.device == "cpu"
    assert decision.speedup == pytest.approx(200.0 / (50.0 * 1.17))
    assert decision.reason == "cpu: 1,000 steps take 58.5 J there and 200 J on cuda, 17% faster for 3.4× the energy"
    told = objective_of("energy", watts={"cuda": 55.0})
    assert decide(two, 1000, told).device == "cuda"


def test_equal_prices_are_no_reason_to_wait(two: dict[str, Prediction]) -> None:
    same = decide(two, None, objective_of("cost", {"cpu": 1.0, "cuda": 1.0}))
    by_time = decide(two, None)
    assert (same.device, same.speedup, same.confidence) == (
        by_time.device, pytest.approx(by_time.speedup), pytest.approx(by_time.confidence)
    )  # fmt: skip


def test_one_time_costs_are_paid_too(make_prediction: Make) -> None:
    cpu, cuda = make_prediction("cpu", 3e-3), make_prediction("cuda", 1e-3, one_time_seconds=3.0)
    twice = objective_of("cost", {"cpu": 1.0, "cuda": 2.0})
    # 3 s at twice the price are repaid by a third of the time at twice the price: 6 / (3 - 2) thousand steps.
    assert break_even_steps(cuda, cpu, twice) == pytest.approx(6000, abs=1)
    assert decide({"cpu": cpu, "cuda": cuda}, 5990, twice).device == "cpu"
    assert decide({"cpu": cpu, "cuda": cuda}, 6010, twice).device == "cuda"


def test_memory_comes_before_money(two: dict[str, Prediction]) -> None:
    cost = objective_of("cost", {"cpu": 0.1, "cuda": 3.0})
    decision = decide({**two, "cpu": replace(two["cpu"], fits=False)}, None, cost)
    assert decision.device == "cuda"
    assert "cpu would be cheaper" in decision.reason


def test_a_price_is_found_by_device_machine_or_kind(make_prediction: Make) -> None:
    def price(name: str, **given: float) -> float | None:
        return objective_of("cost", given).dollars_per_hour(make_prediction(name, 1e-3))

    assert price("cuda@Tesla T4", **{"cuda": 1.0, "Tesla T4": 2.0, "cuda@Tesla T4": 3.0}) == 3.0
    assert price("cuda@Tesla T4", **{"cuda": 1.0, "Tesla T4": 2.0}) == 2.0
    assert price("cuda@Tesla T4", cuda=1.0) == price("cuda:1", cuda=1.0) == 1.0
    assert price("cpu", cuda=1.0) is None


def test_a_price_is_found_by_any_name_of_the_gpu(make_prediction: Make) -> None:
    def price(name: str, **given: float) -> float | None:
        return objective_of("cost", given).dollars_per_hour(make_prediction(name, 1e-3))

    assert price("cuda@Tesla T4", T4=2.0, cuda=1.0) == 2.0
    assert price("cuda@Tesla T4", V100=2.0) is None


@pytest.mark.parametrize(
    ("arguments", "error", "told"),
    [
        (("money",), ValueError, "objective must be 'time' or 'cost' or 'energy', not 'money'"),
        (("cost",), ValueError, 'objective "cost" needs price'),
        (("cost", {"cpu": 0.0}), ValueError, "positive numbers, not 'cpu' to 0.0"),
        (("cost", {"cpu": True}), ValueError, "positive numbers, not 'cpu' to True"),
        (("cost", {1: 1.0}), ValueError, "positive numbers, not 1 to 1.0"),
        (("cost", 2.5), TypeError, "price must map device names to numbers"),
        (("energy", None, {"cpu": float("nan")}), ValueError, "watts must map device names to positive numbers"),
    ],
)
def test_wrong_arguments(arguments: tuple[Any, ...], error: type[Exception], told: str) -> None:
    with pytest.raises(error, match=told):
        objective_of(*arguments)


def test_what_is_not_known_is_asked_for(two: dict[str, Prediction]) -> None:
    cost = objective_of("cost", {"cpu": 0.1})
    check_known(cost, ("cpu",))
    check_known(TIME, ("cpu", "cuda"))
    with pytest.raises(ValueError, match="no price is given for cuda"):
        check_known(cost, ("cpu", "cuda"))
    with pytest.raises(PlacerError, match=r"no price is given for cuda: .*--price cuda=2\.50"):
        decide(two, None, cost)
    there = {**two, "cuda": replace(two["cuda"], device="cuda@Tesla T4")}
    with pytest.raises(PlacerError, match=r'--price "cuda@Tesla T4=2\.50"'):
        decide(there, None, cost)
    unknown = {**two, "cuda": replace(two["cuda"], watts=None)}
    with pytest.raises(PlacerError, match=r"the power of cuda is not known: .*--watts cuda=250"):
        decide(unknown, None, objective_of("energy"))
