from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from placer.explanation.build import find_bottlenecks as find
from placer.explanation.data import Bottleneck
from placer.pricing.prediction import Prediction
from placer.tracing.trace_data import OpCall, TensorSpec

Make = Callable[..., Prediction]
SPEC = TensorSpec((4, 4), (4, 1), "float32")


def timed(make: Make, *parts: tuple[str, str, str, float], device: str = "cpu") -> dict[str, Prediction]:
    """A prediction of op calls given as (op, layer, phase, seconds)."""
    made = make(device)
    calls = tuple(OpCall(op, (SPEC,), (SPEC,), phase=phase, layer=layer) for op, layer, phase, _ in parts)  # type: ignore[arg-type]
    priced = replace(
        made.priced, trace=replace(made.priced.trace, calls=calls), seconds=tuple(seconds for *_, seconds in parts)
    )
    return {device: replace(made, priced=priced)}


def test_the_op_that_takes_most_of_a_phase_is_found_with_all_its_calls(make_prediction: Make) -> None:
    found = find(timed(
        make_prediction, ("mm", "a", "backward", 1.0), ("put", "pool", "backward", 3.0), ("mul", "a", "backward", 1.0),
        ("put", "pool", "backward", 3.0), ("mm", "a", "forward", 1.0),
    ))  # fmt: skip
    assert found == (Bottleneck("cpu", "backward", "pool", "put", 6.0, 8.0),)


def test_the_same_op_in_two_layers_is_two(make_prediction: Make) -> None:
    parts = [("mm", "abcd"[i], "forward", 1.0) for i in range(4)]
    assert find(timed(make_prediction, *parts)) == ()


def test_less_than_half_is_none(make_prediction: Make) -> None:
    parts = [("a", "x", "forward", 4.9), ("b", "x", "forward", 2.6), ("c", "x", "forward", 2.5)]
    assert find(timed(make_prediction, *parts)) == ()


def test_a_phase_of_no_weight_or_of_one_or_two_ops_has_none(make_prediction: Make) -> None:
    light = [("a", "x", "loss", 0.9), ("b", "x", "loss", 0.05), ("c", "x", "loss", 0.05)]
    heavy = [("d", "x", "backward", 90.0), ("e", "x", "backward", 5.0)]
    assert find(timed(make_prediction, *light, *heavy)) == ()


def test_ops_that_cost_nothing_on_a_device_do_not_count(make_prediction: Make) -> None:
    parts = [("a", "x", "forward", 9.0), ("b", "x", "forward", 1.0), ("view", "x", "forward", 0.0)]
    assert find(timed(make_prediction, *parts)) == ()


def test_every_device_has_its_own(make_prediction: Make) -> None:
    parts = [("a", "x", "forward", 9.0), ("b", "x", "forward", 1.0), ("c", "x", "forward", 1.0)]
    both = {**timed(make_prediction, *parts), **timed(make_prediction, *parts, device="cuda")}
    assert [row.device for row in find(both)] == ["cpu", "cuda"]
