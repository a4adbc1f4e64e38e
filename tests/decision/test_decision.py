"""Exact arithmetic on hand-made predictions."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from placer.decision.decision import SURE, Z_90, Decision, break_even_steps, decide, probability_faster
from placer.pricing.prediction import Prediction

Make = Callable[..., Prediction]


def test_one_device_is_certain(make_prediction: Make) -> None:
    decision = decide({"cpu": make_prediction("cpu", 1.24e-3)}, None)
    assert (decision.device, decision.confidence, decision.speedup, decision.break_even_steps) == (
        "cpu",
        1.0,
        None,
        None,
    )
    assert decision.reason == "cpu: there is no other device to choose; a step takes 1.24 ms"


def test_a_long_run_is_decided_by_the_step_alone(make_prediction: Make) -> None:
    cpu, cuda = make_prediction("cpu", 2e-3), make_prediction("cuda", 1e-3, one_time_seconds=1e6)
    decision = decide({"cpu": cpu, "cuda": cuda}, None)
    assert (decision.device, decision.speedup) == ("cuda", 2.0)


def test_one_time_cost_counts_for_a_number_of_steps(make_prediction: Make) -> None:
    devices = {"cpu": make_prediction("cpu", 2e-3), "cuda": make_prediction("cuda", 1e-3, one_time_seconds=3.0)}
    assert decide(devices, 3000).device == "cpu"  # 6.0 s against 3.0 + 3.0 s: equal, so the CPU
    assert decide(devices, 3001).device == "cuda"
    decision = decide(devices, 1000)
    assert decision.device == "cpu"
    assert decision.speedup == pytest.approx(4.0 / 2.0)
    assert decision.reason == "cpu: 1,000 steps take 2.00 s there and 4.00 s on cuda (3.00 s of it to start)"


def test_break_even_is_the_first_step_that_is_ahead(make_prediction: Make) -> None:
    cpu, cuda = make_prediction("cpu", 2e-3), make_prediction("cuda", 1e-3, one_time_seconds=2.5e-3)
    assert break_even_steps(cuda, cpu) == 3
    assert decide({"cpu": cpu, "cuda": cuda}, None).break_even_steps == 3
    assert break_even_steps(make_prediction("cuda", 1e-3), cpu) == 1
    assert break_even_steps(make_prediction("cuda", 2e-3), cpu) is None
    slower = decide({"cpu": cpu, "cuda": make_prediction("cuda", 3e-3, one_time_seconds=1.0)}, None)
    assert slower.break_even_steps is None
    # Another machine's CPU was chosen: only what is faster than that one is ever repaid.
    beside = {"cpu": cpu, "cuda": cuda, "cpu@other": make_prediction("cpu@other", cuda.step_seconds / 2)}
    assert decide(beside, None).device == "cpu@other"
    assert decide(beside, None).break_even_steps is None


def test_equal_times_go_to_the_cpu_in_any_order(make_prediction: Make) -> None:
    cpu, cuda = make_prediction("cpu", 1e-3), make_prediction("cuda", 1e-3)
    assert decide({"cpu": cpu, "cuda": cuda}, None).device == "cpu"
    assert decide({"cuda": cuda, "cpu": cpu}, None).device == "cpu"
    assert decide({"cuda": cuda, "cpu": cpu}, None).confidence == 0.5


def test_confidence_is_the_log_normal_probability(make_prediction: Make) -> None:
    cpu = make_prediction("cpu", 1e-3, low=0.5e-3, high=2e-3)
    cuda = make_prediction("cuda", 2e-3, low=1e-3, high=4e-3)
    sigma = math.log(4.0) / (2 * Z_90)
    expected = 0.5 * (1 + math.erf(math.log(2.0) / (sigma * math.sqrt(2)) / math.sqrt(2)))
    assert decide({"cpu": cpu, "cuda": cuda}, None).confidence == pytest.approx(expected, rel=1e-12)


def test_without_uncertainty_confidence_is_certainty(make_prediction: Make) -> None:
    cpu = make_prediction("cpu", 1e-3, low=1e-3, high=1e-3)
    cuda = make_prediction("cuda", 2e-3, low=2e-3, high=2e-3)
    assert probability_faster(cpu, cuda) == 1.0
    assert probability_faster(cuda, cpu) == 0.0


def test_a_device_without_room_is_left_out_and_named(make_prediction: Make) -> None:
    cuda = make_prediction("cuda", 1e-3, fits=False, peak_memory_bytes=12_100_000_000)
    decision = decide({"cpu": make_prediction("cpu", 2e-3), "cuda": cuda}, None)
    assert decision.device == "cpu"
    assert decision.reason == (
        "cpu: cuda would be faster (1.00 ms a step against 2.00 ms a step), but does not fit: "
        "it needs 12.1 GB of memory"
    )
    less = {"fits": False, "peak_memory_bytes": 3_000_000_000}
    for available, told in ((2_000_000_000, "2.00 GB"), (-5, "0 B")):
        other = make_prediction("cuda", 1e-3, available_memory_bytes=available, **less)
        found = decide({"cpu": make_prediction("cpu", 2e-3), "cuda": other}, 1000).reason
        assert found.startswith("cpu: cuda would be faster (1.00 s in all against 2.00 s in all), but does not fit")
        assert found.endswith(f"it needs 3.00 GB of memory and can have {told}")


def test_where_nothing_fits_the_fastest_is_taken_with_a_word_of_warning(make_prediction: Make) -> None:
    devices = {name: make_prediction(name, s, fits=False) for name, s in (("cpu", 2e-3), ("cuda", 1e-3))}
    decision = decide(devices, None)
    assert decision.device == "cuda"
    assert "no device has that much free" in decision.reason


def test_the_reason_names_what_bounds_both(make_prediction: Make) -> None:
    cpu = make_prediction("cpu", 1.2e-3, bounded_by="memory")
    cuda = make_prediction("cuda", 3.4e-3, bounded_by="launches")
    assert decide({"cpu": cpu, "cuda": cuda}, None).reason == (
        "cpu: a step takes 1.20 ms there (bounded by memory) and 3.40 ms on cuda (bounded by launches)"
    )


@pytest.mark.parametrize(("slower", "tie"), [(1.0, True), (1.099, True), (1.101, False), (2.0, False)])
@pytest.mark.parametrize("chosen", ["cpu", "cuda"])
def test_within_a_tenth_devices_are_about_the_same(
    make_prediction: Make, slower: float, tie: bool, chosen: str
) -> None:
    """However exact the predictions are."""
    other = "cuda" if chosen == "cpu" else "cpu"
    times = {chosen: 1e-3, other: slower * 1e-3}
    found = {name: make_prediction(name, seconds, low=seconds, high=seconds) for name, seconds in times.items()}
    decision = decide(found, None)
    assert (decision.device, decision.tie) == (chosen if slower > 1.0 else "cpu", tie)
    assert decision.verdict == ("about the same" if tie else chosen)
    assert decision.reason.partition(": about the same")[1] == (": about the same" if tie else "")
    assert "as far as" not in decision.reason


def test_where_nobody_can_be_sure_devices_are_about_the_same(make_prediction: Make) -> None:
    def decided(low: float, high: float) -> Decision:
        found = {"cpu": make_prediction("cpu", 1e-3), "cuda": make_prediction("cuda", 1.3e-3, low=low, high=high)}
        return decide(found, None)

    sure, unsure = decided(1.2e-3, 1.4e-3), decided(0.3e-3, 6e-3)
    assert sure.confidence is not None
    assert unsure.confidence is not None
    assert sure.confidence > SURE > unsure.confidence
    assert (sure.tie, unsure.tie) == (False, True)
    told = "a step takes 1.00 ms there and 1.30 ms on cuda: about the same, as far as predictions tell"
    assert unsure.reason == f"cpu: {told}"


def test_with_steps_the_total_makes_the_tie(make_prediction: Make) -> None:
    cpu, cuda = make_prediction("cpu", 2e-3), make_prediction("cuda", 1e-3, one_time_seconds=1.0)
    tie, clear = decide({"cpu": cpu, "cuda": cuda}, 950), decide({"cpu": cpu, "cuda": cuda}, 100)
    assert (tie.device, tie.tie, clear.device, clear.tie) == ("cpu", True, "cpu", False)
    assert tie.reason == (
        "cpu: 950 steps take 1.90 s there and 1.95 s on cuda (1.00 s of it to start): about the same; "
        "cuda is ahead from 1,001 steps on"
    )
    late = decide({"cpu": cpu, "cuda": cuda}, 1050)
    assert (late.device, late.tie) == ("cuda", True)
    told = "1,050 steps take 2.05 s there (1.00 s of it to start) and 2.10 s on cpu: about the same"
    assert late.reason == f"cuda: {told}"


def test_a_tie_names_what_favours_the_accelerator(make_prediction: Make) -> None:
    cpu = make_prediction("cpu", 1.00e-3)
    copies = make_prediction("cuda", 1.05e-3, components={"compute": 0.5e-3, "copy": 0.55e-3})
    small = make_prediction("cuda", 1.05e-3, bounded_by="launches")
    plain = make_prediction("cuda", 1.05e-3, bounded_by="memory")
    reasons = [decide({"cpu": cpu, "cuda": cuda}, None).reason for cuda in (copies, small, plain)]
    assert [reason.partition("about the same")[2] for reason in reasons] == [
        "; without its copies, a step on cuda takes about 500 µs", "; a larger batch favours cuda", "",
    ]  # fmt: skip
    two = decide({"cuda": small, "cuda:1": make_prediction("cuda:1", 1.05e-3, bounded_by="launches")}, None)
    assert two.reason.endswith(": about the same")


def test_no_tie_without_another_device_or_without_a_prediction(make_prediction: Make) -> None:
    assert not decide({"cpu": make_prediction("cpu")}, None).tie
    assert not Decision("cpu", 1, None, "cpu: set by PLACER_DEVICE").tie
    large = make_prediction("cuda", 0.9e-3, fits=False)
    assert not decide({"cpu": make_prediction("cpu"), "cuda": large}, None).tie


def test_no_predictions_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one device"):
        decide({}, None)


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


def test_the_reason_counts_steps(make_prediction: Make) -> None:
    devices = {"cpu": make_prediction("cpu", 2.0), "cuda": make_prediction("cuda", 1.0, one_time_seconds=9.0)}
    reasons = [decide(devices, steps).reason for steps in (1, 2)]
    assert reasons == [
        "cpu: 1 step takes 2.00 s there and 10.0 s on cuda (9.00 s of it to start)",
        "cpu: 2 steps take 4.00 s there and 11.0 s on cuda (9.00 s of it to start)",
    ]


def test_times_that_differ_by_less_than_a_rounding_error_go_to_the_cpu(make_prediction: Make) -> None:
    cpu, cuda = make_prediction("cpu", 1e-3), make_prediction("cuda", 1e-3 * (1 - 1e-12))
    assert decide({"cpu": cpu, "cuda": cuda}, None).device == "cpu"
    assert decide({"cpu": cpu, "cuda": make_prediction("cuda", 1e-3 * (1 - 1e-6))}, None).device == "cuda"


def test_the_reason_is_the_whole_only_where_the_steps_would_not_have_decided(make_prediction: Make) -> None:
    def told(step: float) -> str:
        cuda = make_prediction("cuda", step, one_time_seconds=10.0)
        return decide({"cpu": make_prediction("cpu", 1e-3), "cuda": cuda}, 10).reason[:20]

    assert [told(step) for step in (0.9e-3, 1e-3, 1.0005e-3)] == [
        "cpu: 10 steps take 1", "cpu: 10 steps take 1", "cpu: a step takes 1.",
    ]  # fmt: skip
