"""Exact arithmetic on hand-made predictions: the choice, its confidence, and its reason."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from placer.decision.decision import (
    SURE,
    Z_90,
    Decision,
    Point,
    break_even_steps,
    decide,
    pareto,
    probability_faster,
    trade,
)
from placer.decision.objective import check_priced, objective_of
from placer.errors import PlacerError
from placer.pricing import Prediction

Make = Callable[..., Prediction]


def test_one_device_is_certain(make_prediction: Make) -> None:
    decision = decide({"cpu": make_prediction("cpu", 1.24e-3)}, None)
    assert (decision.device, decision.confidence) == ("cpu", 1.0)
    assert (decision.speedup, decision.break_even_steps) == (None, None)
    assert decision.reason == "cpu: there is no other device to choose; a step takes 1.24 ms"
    assert not decision.tie
    assert not Decision("cpu", 1, None, "cpu: set by PLACER_DEVICE").tie


def test_one_time_costs_count_for_a_number_of_steps(make_prediction: Make) -> None:
    devices = {"cpu": make_prediction("cpu", 2e-3), "cuda": make_prediction("cuda", 1e-3, one_time_seconds=3.0)}
    assert [decide(devices, steps).device for steps in (3000, 3001, None)] == ["cpu", "cuda", "cuda"]  # equal: the CPU
    decision = decide(devices, 1000)
    assert (decision.device, decision.speedup) == ("cpu", pytest.approx(4.0 / 2.0))
    assert decision.reason == "cpu: 1,000 steps take 2.00 s there and 4.00 s on cuda (3.00 s of it to start)"
    assert decide(devices, 1).reason == "cpu: 1 step takes 2.00 ms there and 3.00 s on cuda (3.00 s of it to start)"
    tie, late = decide(devices, 2900), decide(devices, 3100)
    assert (tie.device, tie.tie, late.device, late.tie) == ("cpu", True, "cuda", True)
    assert tie.reason.endswith(": about the same; cuda is ahead from 3,001 steps on")
    assert late.reason.endswith("and 6.20 s on cpu: about the same")


def test_the_reason_is_the_whole_only_where_the_steps_would_not_have_decided(make_prediction: Make) -> None:
    def told(step: float) -> str:
        cuda = make_prediction("cuda", step, one_time_seconds=10.0)
        return decide({"cpu": make_prediction("cpu", 1e-3), "cuda": cuda}, 10).reason[:20]

    assert [told(step) for step in (0.9e-3, 1e-3, 1.0005e-3)] == [
        "cpu: 10 steps take 1",
        "cpu: 10 steps take 1",
        "cpu: a step takes 1.",
    ]


def test_break_even_is_the_first_step_that_is_ahead(make_prediction: Make) -> None:
    cpu, cuda = make_prediction("cpu", 2e-3), make_prediction("cuda", 1e-3, one_time_seconds=2.5e-3)
    assert decide({"cpu": cpu, "cuda": cuda}, None).break_even_steps == break_even_steps(cuda, cpu) == 3
    assert break_even_steps(make_prediction("cuda", 1e-3), cpu) == 1
    assert break_even_steps(make_prediction("cuda", 2e-3), cpu) is None
    # Another machine's CPU was chosen: only what is faster than that one is ever repaid.
    beside = decide({"cpu": cpu, "cuda": cuda, "cpu@other": make_prediction("cpu@other", 5e-4)}, None)
    assert (beside.device, beside.break_even_steps) == ("cpu@other", None)


def test_equal_times_go_to_the_cpu_in_any_order(make_prediction: Make) -> None:
    cpu = make_prediction("cpu", 1e-3)
    for share, device in ((0.0, "cpu"), (1e-12, "cpu"), (1e-6, "cuda")):
        cuda = make_prediction("cuda", 1e-3 * (1 - share))
        for found in ({"cpu": cpu, "cuda": cuda}, {"cuda": cuda, "cpu": cpu}):
            decision = decide(found, None)
            assert (decision.device, decision.confidence) == (device, pytest.approx(0.5, abs=1e-5))


def test_confidence_is_the_log_normal_probability(make_prediction: Make) -> None:
    cpu = make_prediction("cpu", 1e-3, low=0.5e-3, high=2e-3)
    cuda = make_prediction("cuda", 2e-3, low=1e-3, high=4e-3)
    sigma = math.log(4.0) / (2 * Z_90)
    expected = 0.5 * (1 + math.erf(math.log(2.0) / (sigma * math.sqrt(2)) / math.sqrt(2)))
    assert decide({"cpu": cpu, "cuda": cuda}, None).confidence == pytest.approx(expected, rel=1e-12)
    exact = [replace(p, low=p.step_seconds, high=p.step_seconds) for p in (cpu, cuda)]
    assert (probability_faster(*exact), probability_faster(*exact[::-1])) == (1.0, 0.0)


def test_a_device_without_room_is_left_out_and_named(make_prediction: Make) -> None:
    cpu = make_prediction("cpu", 2e-3)
    cuda = make_prediction("cuda", 1e-3, fits=False, peak_memory_bytes=12_100_000_000)
    decision = decide({"cpu": cpu, "cuda": cuda}, None)
    assert (decision.device, decision.tie) == ("cpu", False)
    assert decision.reason == (
        "cpu: cuda would be faster (1.00 ms a step against 2.00 ms a step), but does not fit: "
        "it needs 12.1 GB of memory"
    )
    for available, told in ((2_000_000_000, "2.00 GB"), (-5, "0 B")):
        reason = decide({"cpu": cpu, "cuda": replace(cuda, available_memory_bytes=available)}, 1000).reason
        assert reason.startswith("cpu: cuda would be faster (1.00 s in all against 2.00 s in all), but does not fit")
        assert reason.endswith(f"it needs 12.1 GB of memory and can have {told}")
    nothing = decide({"cpu": replace(cpu, fits=False), "cuda": cuda}, None)
    assert nothing.device == "cuda"
    assert "no device has that much free" in nothing.reason


@pytest.mark.parametrize(("slower", "tie"), [(1.0, True), (1.099, True), (1.101, False), (2.0, False)])
@pytest.mark.parametrize("chosen", ["cpu", "cuda"])
def test_within_a_tenth_devices_are_about_the_same(
    make_prediction: Make, slower: float, tie: bool, chosen: str
) -> None:
    """However exact the predictions are."""
    times = {chosen: 1e-3, "cuda" if chosen == "cpu" else "cpu": slower * 1e-3}
    found = {name: make_prediction(name, seconds, low=seconds, high=seconds) for name, seconds in times.items()}
    decision = decide(found, None)
    assert (decision.device, decision.tie) == (chosen if slower > 1.0 else "cpu", tie)
    assert decision.verdict == ("about the same" if tie else chosen)
    assert (": about the same" in decision.reason) == tie
    assert "as far as" not in decision.reason


def test_where_nobody_can_be_sure_devices_are_about_the_same(make_prediction: Make) -> None:
    cpu = make_prediction("cpu", 1e-3)
    sure, unsure = (
        decide({"cpu": cpu, "cuda": make_prediction("cuda", 1.3e-3, low=low, high=high)}, None)
        for low, high in ((1.2e-3, 1.4e-3), (0.3e-3, 6e-3))
    )
    assert (sure.confidence or 0.0) > SURE > (unsure.confidence or 1.0)
    assert (sure.tie, unsure.tie) == (False, True)
    assert unsure.reason == (
        "cpu: a step takes 1.00 ms there and 1.30 ms on cuda: about the same, as far as predictions tell"
    )


def test_a_tie_names_what_favours_the_accelerator(make_prediction: Make) -> None:
    cpu = make_prediction("cpu", 1.00e-3, bounded_by="memory")
    copies = make_prediction("cuda", 1.05e-3, components={"compute": 0.5e-3, "copy": 0.55e-3})
    small, plain = (make_prediction("cuda", 1.05e-3, bounded_by=bound) for bound in ("launches", "memory"))
    reasons = [decide({"cpu": cpu, "cuda": cuda}, None).reason for cuda in (copies, small, plain)]
    assert [reason.partition("about the same")[2] for reason in reasons] == [
        "; without its copies, a step on cuda takes about 500 µs",
        "; a larger batch favours cuda",
        "",
    ]
    assert "1.00 ms there (bounded by memory) and 1.05 ms on cuda (bounded by launches)" in reasons[1]
    two = decide({"cuda": small, "cuda:1": make_prediction("cuda:1", 1.05e-3, bounded_by="launches")}, None)
    assert two.reason.endswith(": about the same")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
@given(
    times=st.lists(st.floats(1e-6, 1e2), min_size=1, max_size=4),
    once=st.lists(st.floats(0, 1e2), min_size=4, max_size=4),
    steps=st.one_of(st.none(), st.integers(1, 10**7)),
)
def test_never_slower_than_any_other(
    make_prediction: Make, times: list[float], once: list[float], steps: int | None
) -> None:
    names = ["cpu", "cuda", "cuda:1", "mps"]
    found = {n: make_prediction(n, t, one_time_seconds=o) for n, t, o in zip(names, times, once, strict=False)}
    cost = {
        n: p.step_seconds if steps is None else p.one_time_seconds + steps * p.step_seconds for n, p in found.items()
    }
    decision = decide(found, steps)
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
    same, by_time = decide(two, None, objective_of("cost", {"cpu": 1.0, "cuda": 1.0})), decide(two, None)
    assert (same.device, same.speedup) == (by_time.device, pytest.approx(by_time.speedup))
    no_room = decide({**two, "cpu": replace(two["cpu"], fits=False)}, None, objective_of("cost", {"cpu": 1, "cuda": 9}))
    assert no_room.device == "cuda"
    assert "cpu would be cheaper" in no_room.reason


def test_energy_is_watts_times_seconds(two: dict[str, Prediction]) -> None:
    decision = decide(two, 1000, objective_of("energy"))
    assert (decision.device, decision.speedup) == ("cpu", pytest.approx(200.0 / (50.0 * 1.17)))
    assert decision.reason == "cpu: 1,000 steps take 58.5 J there and 200 J on cuda, 17% faster for 3.4× the energy"
    assert decide(two, 1000, objective_of("energy", watts={"cuda": 55.0})).device == "cuda"


def test_one_time_costs_are_paid_too(make_prediction: Make) -> None:
    cpu, cuda = make_prediction("cpu", 3e-3), make_prediction("cuda", 1e-3, one_time_seconds=3.0)
    twice = objective_of("cost", {"cpu": 1.0, "cuda": 2.0})
    # 3 s at twice the price are repaid by a third of the time at twice the price: 6 / (3 - 2) thousand steps.
    assert break_even_steps(cuda, cpu, twice) == pytest.approx(6000, abs=1)
    assert [decide({"cpu": cpu, "cuda": cuda}, steps, twice).device for steps in (5990, 6010)] == ["cpu", "cuda"]


@pytest.mark.parametrize(
    ("device", "given", "found"),
    [
        ("cuda@Tesla T4", {"cuda": 1.0, "Tesla T4": 2.0, "cuda@Tesla T4": 3.0}, 3.0),
        ("cuda@Tesla T4", {"cuda": 1.0, "Tesla T4": 2.0}, 2.0),
        ("cuda@Tesla T4", {"T4": 2.0, "cuda": 1.0}, 2.0),
        ("cuda@Tesla T4", {"cuda": 1.0}, 1.0),
        ("cuda@Tesla T4", {"V100": 2.0}, None),
        ("cuda:1", {"cuda": 1.0}, 1.0),
        ("cpu", {"cuda": 1.0}, None),
    ],
)
def test_a_price_is_found_by_device_machine_or_kind(
    make_prediction: Make, device: str, given: dict[str, float], found: float | None
) -> None:
    assert objective_of("cost", given).dollars_per_hour(make_prediction(device)) == found


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
def test_wrong_objectives(arguments: tuple[Any, ...], error: type[Exception], told: str) -> None:
    with pytest.raises(error, match=told):
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

FAST, CHEAP = Point("f", 1.0, 5.0), Point("c", 2.0, 1.0)


@pytest.mark.parametrize(
    ("points", "left"),
    [
        ((FAST, CHEAP), "fc"),
        ((FAST, CHEAP, Point("x", 2.0, 1.5)), "fc"),
        ((FAST, CHEAP, Point("y", 1.5, 1.5)), "fcy"),
        ((FAST, Point("g", 1.0, 5.0)), "fg"),  # equal ones don't beat each other
        ((Point("z", 1.0, 10.0), Point("c", 1.01, 1.0)), "c"),  # a difference below 2 % is none
        ((Point("a", 1.0, 1.01), Point("b", 1.01, 1.0)), "ab"),
        ((Point("u", 1.0), Point("k", 2.0, 1.0)), "uk"),
        ((Point("u", 3.0), Point("k", 2.0, 1.0)), "k"),
    ],
)
def test_a_point_is_beaten_by_what_is_nowhere_worse(points: tuple[Point, ...], left: str) -> None:
    assert "".join(point.name for point in pareto(points)) == left


@pytest.mark.parametrize(
    ("other", "chosen", "told"),
    [
        (Point("", 1.0, 5.0), Point("", 1.17, 1.0), "17% faster for 5.0× the money"),
        (Point("", 1.0, 1.05), Point("", 3.0, 1.0), "3.0× as fast for 5% more money"),
        (Point("", 2.0, 0.5), Point("", 1.0, 1.0), "50% less money for 2.0× the time"),
        (Point("", 1.05, 0.5), Point("", 1.0, 1.0), "50% less money for 5% more time"),
        (Point("", 2.0, 3.0), Point("", 1.0, 1.0), "2.0× the time and 3.0× the money"),
        (Point("", 1.0, None, 4.0), Point("", 2.0, 1.0, 1.0), "2.0× as fast for 4.0× the energy"),
        (Point("", 1.0), Point("", 1.01), ""),
    ],
)
def test_a_trade_is_one_line(other: Point, chosen: Point, told: str) -> None:
    assert trade(other, chosen) == told
