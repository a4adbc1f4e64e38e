"""Exact arithmetic on hand-made predictions: the choice, its confidence, and its reason."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from placer.decision import break_even_steps, check_priced, decide, objective_of, pareto
from placer.decision.decision import SURE, Decision
from placer.errors import PlacerError
from placer.pricing import Z90, Cost, Prediction

Make = Callable[..., Prediction]


def test_one_device_is_certain(make_prediction: Make) -> None:
    decision = decide({"cpu": make_prediction("cpu", 1.24e-3)}, None)
    assert (decision.device, decision.confidence) == ("cpu", 1.0)
    assert (decision.speedup, decision.break_even_steps, decision.tie) == (None, None, False)
    assert decision.reason == "cpu: there is no other device to choose; a step takes 1.24 ms"
    assert not Decision("cpu", 1, None, "cpu: set by PLACER_DEVICE").tie
    with pytest.raises(ValueError, match="at least one device"):
        decide({}, None)


def test_one_time_costs_count_for_a_number_of_steps(make_prediction: Make) -> None:
    cpu, cuda = make_prediction("cpu", 2e-3), make_prediction("cuda", 1e-3, one_time_seconds=3.0)
    devices = {"cpu": cpu, "cuda": cuda}
    assert [decide(devices, steps).device for steps in (3000, 3001, None)] == ["cpu", "cuda", "cuda"]  # equal: the CPU
    decision = decide(devices, 1000)
    assert (decision.device, decision.speedup, decision.break_even_steps) == ("cpu", pytest.approx(2.0), 3001)
    assert decision.reason == "cpu: 1,000 steps take 2.00 s there and 4.00 s on cuda (3.00 s of it to start)"
    assert decide(devices, 1).reason == "cpu: 1 step takes 2.00 ms there and 3.00 s on cuda (3.00 s of it to start)"
    tie = decide(devices, 2900)
    assert (tie.device, tie.tie, tie.reason.partition("to start)")[2]) == ("cpu", True, ": about the same")
    assert break_even_steps(make_prediction("cuda", 1e-3), cpu) == 1
    assert break_even_steps(make_prediction("cuda", 2e-3), cpu) is None
    # 3 s at twice the price are repaid by a third of the time at twice the price: 6 / (3 - 2) thousand steps.
    twice, slow = objective_of("cost", {"cpu": 1.0, "cuda": 2.0}), {**devices, "cpu": make_prediction("cpu", 3e-3)}
    assert [decide(slow, steps, twice).device for steps in (5990, 6010)] == ["cpu", "cuda"]
    assert decide(slow, None, twice).break_even_steps == pytest.approx(6000, abs=1)


def test_equal_times_go_to_the_cpu_in_any_order(make_prediction: Make) -> None:
    cpu = make_prediction("cpu", 1e-3)
    for share, device in ((0.0, "cpu"), (1e-12, "cpu"), (1e-6, "cuda")):
        cuda = make_prediction("cuda", 1e-3 * (1 - share))
        for devices in ({"cpu": cpu, "cuda": cuda}, {"cuda": cuda, "cpu": cpu}):
            decision = decide(devices, None)
            assert (decision.device, decision.confidence) == (device, pytest.approx(0.5, abs=1e-5))


def test_confidence_is_the_log_normal_probability(make_prediction: Make) -> None:
    cpu = make_prediction("cpu", 1e-3, low=0.5e-3, high=2e-3)
    cuda = make_prediction("cuda", 2e-3, low=1e-3, high=4e-3)
    sigma = math.log(4.0) / (2 * Z90)
    expected = 0.5 * (1 + math.erf(math.log(2.0) / (sigma * math.sqrt(2)) / math.sqrt(2)))
    assert decide({"cpu": cpu, "cuda": cuda}, None).confidence == pytest.approx(expected, rel=1e-12)
    exact = {p.device: replace(p, low=p.step_seconds, high=p.step_seconds) for p in (cpu, cuda)}
    assert decide(exact, None).confidence == 1.0


def test_a_device_without_room_is_left_out_and_named(make_prediction: Make) -> None:
    cpu = make_prediction("cpu", 2e-3)
    cuda = make_prediction("cuda", 1e-3, fits=False, peak_memory_bytes=12_100_000_000)
    decision = decide({"cpu": cpu, "cuda": cuda}, None)
    assert (decision.device, decision.tie) == ("cpu", False)
    assert decision.reason == (
        "cpu: cuda would be faster (1.00 ms against 2.00 ms), but does not fit: it needs 12.1 GB of memory"
    )
    reason = decide({"cpu": cpu, "cuda": replace(cuda, available_memory_bytes=2_000_000_000)}, 1000).reason
    assert reason.endswith("(1.00 s against 2.00 s), but does not fit: it needs 12.1 GB of memory and can have 2.00 GB")
    nothing = decide({"cpu": replace(cpu, fits=False), "cuda": cuda}, None)
    assert (nothing.device, "no device has that much free" in nothing.reason) == ("cuda", True)


def test_within_a_tenth_devices_are_about_the_same(make_prediction: Make) -> None:
    """However exact the predictions are."""
    for slower, tie in ((1.0, True), (1.099, True), (1.101, False), (2.0, False)):
        times = {"cpu": slower * 1e-3, "cuda": 1e-3}
        decision = decide({name: make_prediction(name, s, low=s, high=s) for name, s in times.items()}, None)
        assert (decision.device, decision.tie) == ("cuda" if slower > 1.0 else "cpu", tie)
        assert decision.verdict == ("about the same" if tie else "cuda")
        assert decision.reason.endswith(": about the same") == tie


def test_where_nobody_can_be_sure_devices_are_about_the_same(make_prediction: Make) -> None:
    cpu = make_prediction("cpu", 1e-3, bounded_by="memory")
    sure, unsure = (
        decide({"cpu": cpu, "cuda": make_prediction("cuda", 1.3e-3, low=low, high=high)}, None)
        for low, high in ((1.2e-3, 1.4e-3), (0.3e-3, 6e-3))
    )
    assert (sure.confidence or 0.0) > SURE > (unsure.confidence or 1.0)
    assert (sure.tie, unsure.tie) == (False, True)
    assert sure.reason == "cpu: a step takes 1.00 ms there (bounded by memory) and 1.30 ms on cuda"
    assert unsure.reason == f"{sure.reason}: about the same, as far as predictions tell"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
@given(
    times=st.lists(st.floats(1e-6, 1e2), min_size=1, max_size=4),
    once=st.lists(st.floats(0, 1e2), min_size=4, max_size=4),
    steps=st.one_of(st.none(), st.integers(1, 10**7)),
)
def test_never_slower_than_any_other(
    make_prediction: Make, times: list[float], once: list[float], steps: int | None
) -> None:
    rows = zip(["cpu", "cuda", "cuda:1", "mps"], times, once, strict=False)
    devices = {name: make_prediction(name, step, one_time_seconds=start) for name, step, start in rows}
    cost = {n: p.step_seconds * (steps or 1) + (p.one_time_seconds if steps else 0.0) for n, p in devices.items()}
    decision = decide(devices, steps)
    assert cost[decision.device] <= min(cost.values()) * (1 + 1e-8)
    assert decision.confidence is not None
    assert 0.5 - 1e-6 <= decision.confidence <= 1.0
    assert decision.reason.startswith(f"{decision.device}: ")


# --- money and energy in the place of time ---------------------------------------------------------------------------


@pytest.fixture
def two(make_prediction: Make) -> dict[str, Prediction]:
    """A GPU 17 % faster than the CPU, that draws four times the power."""
    cpu = replace(make_prediction("cpu", 1.17e-3), watts=50.0)
    return {"cpu": cpu, "cuda": replace(make_prediction("cuda", 1e-3), watts=200.0)}


def test_the_faster_device_may_cost_more(two: dict[str, Prediction]) -> None:
    assert decide(two, None).device == "cuda"
    decision = decide(two, None, objective_of("cost", {"cpu": 0.5, "cuda": 2.925}))
    assert (decision.device, decision.objective) == ("cpu", "cost")
    assert decision.speedup == pytest.approx(2.925 / 0.5 / 1.17)
    assert decision.reason == (
        "cpu: a million steps cost $0.163 there and $0.812 on cuda, 17% faster for 5.0× the money"
    )
    no_room = decide({**two, "cpu": replace(two["cpu"], fits=False)}, None, objective_of("cost", {"cpu": 1, "cuda": 9}))
    assert (no_room.device, "cpu would be cheaper" in no_room.reason) == ("cuda", True)


def test_energy_is_watts_times_seconds(two: dict[str, Prediction]) -> None:
    decision = decide(two, 1000, objective_of("energy"))
    assert (decision.device, decision.speedup) == ("cpu", pytest.approx(200.0 / (50.0 * 1.17)))
    assert decision.reason == "cpu: 1,000 steps take 58.5 J there and 200 J on cuda, 17% faster for 3.4× the energy"
    assert decide(two, 1000, objective_of("energy", watts={"cuda": 55.0})).device == "cuda"


def test_a_price_is_found_by_device_machine_or_kind(make_prediction: Make) -> None:
    for device, prices, price in (
        ("cuda@Tesla T4", {"cuda": 1.0, "Tesla T4": 2.0, "cuda@Tesla T4": 3.0}, 3.0),
        ("cuda@Tesla T4", {"T4": 2.0, "cuda": 1.0}, 2.0),
        ("cuda@Tesla T4", {"V100": 2.0}, None),
        ("cuda:1", {"cuda": 1.0}, 1.0),
        ("cpu", {"cuda": 1.0}, None),
    ):
        assert objective_of("cost", prices).applied(make_prediction(device), None).dollars_per_hour == price


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
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
def test_wrong_objectives(arguments: tuple[Any, ...], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        objective_of(*arguments)


def test_what_is_not_known_is_asked_for(two: dict[str, Prediction]) -> None:
    cost = objective_of("cost", {"cpu": 0.1})
    check_priced(cost, ("cpu",))
    with pytest.raises(ValueError, match="no price is given for cuda"):
        check_priced(cost, ("cpu", "cuda"))
    with pytest.raises(PlacerError, match=r"no price is given for cuda: .*--price cuda=2\.50"):
        decide(two, None, cost)
    there = {**two, "cuda": replace(two["cuda"], device="cuda@Tesla T4")}
    with pytest.raises(PlacerError, match=r'--price "cuda@Tesla T4=2\.50"'):
        decide(there, None, cost)
    with pytest.raises(PlacerError, match=r"the power of cuda is not known: .*--watts cuda=250"):
        decide({**two, "cuda": replace(two["cuda"], watts=None)}, None, objective_of("energy"))


# --- the Pareto set ---------------------------------------------------------------------------------------------------


def cost(make: Make, seconds: float, dollars: float | None = None, joules: float | None = None) -> Cost:
    """What takes so much of each."""
    hourly = None if dollars is None else 3600.0 * dollars / seconds
    return replace(make("cuda", seconds), dollars_per_hour=hourly, watts=None if joules is None else joules / seconds)


def test_a_cost_is_beaten_by_what_is_nowhere_worse(make_prediction: Make) -> None:
    cases: list[tuple[dict[str, tuple[float, ...]], str]] = [
        ({"f": (1.0, 5.0), "c": (2.0, 1.0), "x": (2.0, 1.5), "y": (1.5, 1.5)}, "fcy"),
        ({"f": (1.0, 5.0), "g": (1.0, 5.0)}, "fg"),  # equal ones don't beat each other
        ({"z": (1.0, 10.0), "c": (1.01, 1.0)}, "c"),  # a difference below 2 % is none
        ({"u": (1.0,), "k": (2.0, 1.0)}, "uk"),
        ({"u": (3.0,), "k": (2.0, 1.0)}, "k"),
    ]
    for amounts, left in cases:
        costs = {name: cost(make_prediction, *values) for name, values in amounts.items()}
        assert pareto(costs, energy=False) == set(left)
