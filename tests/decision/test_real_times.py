"""Which plans are raced, and what real times change of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import nn

from placer.decision import measured as real_times
from placer.decision.decision import decide
from placer.decision.measured import Seen, with_race, with_seen
from placer.decision.plan import Plan
from placer.pricing.prediction import Prediction
from placer.profile.profile import Profile
from placer.workload import Workload, make_workload

PlanOf = Callable[..., Plan]


@pytest.fixture
def plan_of(handmade_profile: Profile) -> PlanOf:
    def made(*predictions: Prediction) -> Plan:
        found = {p.device: p for p in predictions}
        return Plan(decide(found, None), found, {}, handmade_profile, notes=("known",), key="key")

    return made


@pytest.fixture
def workload() -> Workload:
    return make_workload(nn.Linear(4, 2), (3, 4))


@pytest.fixture
def raced(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """The devices of every race, in which the GPU is the faster one, and the threads that it ran with."""
    seen: list[tuple[str, ...]] = []

    def race(_: Workload, devices: tuple[str, ...]) -> dict[str, Seen]:
        seen.append((*devices, str(torch.get_num_threads())))
        return {name: Seen(1.0, 0.9, 1.1) if name == "cuda" else Seen(2.0, 1.9, 2.1) for name in devices}

    monkeypatch.setattr(real_times, "race", race)
    return seen


def test_only_what_could_turn_out_otherwise_is_raced(
    plan_of: PlanOf, make_prediction: Callable[..., Prediction], workload: Workload, raced: list[tuple[str, ...]]
) -> None:
    alone = plan_of(make_prediction("cpu", 1.0))
    beside = plan_of(make_prediction("cpu", 1.0), make_prediction("cuda", 1.2, fits=False))
    clear = plan_of(make_prediction("cpu", 1.0), make_prediction("cuda", 3.0))
    for plan, measure in ((alone, "always"), (beside, "always"), (clear, "unsure")):
        assert with_race(plan, workload, measure) is plan
    assert raced == []
    touching = make_prediction("cuda", 3.0, low=make_prediction("cpu", 1.0).high)
    assert with_race(plan_of(make_prediction("cpu", 1.0), touching), workload, "unsure").measured
    assert with_race(clear, workload, "always").measured
    crowded = plan_of(make_prediction("cpu", 1.0, fits=False), make_prediction("cuda", 9.0, fits=False))
    assert not with_race(crowded, workload, "always").measured  # there is no room for either
    assert [devices[:2] for devices in raced] == [("cpu", "cuda")] * 2


def test_a_race_decides_and_says_so(
    plan_of: PlanOf, make_prediction: Callable[..., Prediction], workload: Workload, raced: list[tuple[str, ...]]
) -> None:
    threads = torch.get_num_threads()
    plan = plan_of(make_prediction("cpu", 1.0), make_prediction("cuda", 1.1))
    after = with_race(plan, workload, "unsure")
    assert (plan.decision.device, after.decision.device, after.measured) == ("cpu", "cuda", True)
    assert after.decision.reason.endswith("(measured)")
    assert {name: p.step_seconds for name, p in after.predictions.items()} == {"cpu": 2.0, "cuda": 1.0}
    assert after.notes[0] == "known"
    assert "were measured on this machine" in after.notes[1]
    assert raced[0][2] == "2"  # the threads that the CPU's prediction is for
    assert torch.get_num_threads() == threads


def test_a_model_that_was_compiled_in_place_is_not_raced(
    plan_of: PlanOf, make_prediction: Callable[..., Prediction], raced: list[tuple[str, ...]]
) -> None:
    model = nn.Linear(4, 2)
    model.compile(backend="eager")
    plan = plan_of(make_prediction("cpu", 1.0), make_prediction("cuda", 1.1))
    after = with_race(plan, make_workload(model, (3, 4)), "always")
    assert (raced, after.measured) == ([], False)
    assert "would have to be compiled again" in after.notes[1]


def test_a_model_with_a_hook_of_the_users_is_not_raced(
    plan_of: PlanOf, make_prediction: Callable[..., Prediction], raced: list[tuple[str, ...]]
) -> None:
    model = nn.Linear(4, 2)
    model.register_forward_hook(lambda *_: None)
    plan = plan_of(make_prediction("cpu", 1.0), make_prediction("cuda", 1.1))
    after = with_race(plan, make_workload(model, (3, 4)), "always")
    assert (raced, after.measured, after.decision) == ([], False, plan.decision)
    assert "the real step was not timed: copies of the model would call" in after.notes[1]


@pytest.mark.parametrize(("error", "said"), [
    (torch.OutOfMemoryError("CUDA out of memory.\nSee the manual"), "OutOfMemoryError: CUDA out of memory."),
    (ValueError("no such key"), "ValueError: no such key"),
])  # fmt: skip
def test_whatever_ends_a_race_leaves_what_was_predicted(
    error: Exception, said: str, plan_of: PlanOf, make_prediction: Callable[..., Prediction], workload: Workload,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    def race(*_: object) -> None:
        raise error

    monkeypatch.setattr(real_times, "race", race)
    plan = plan_of(make_prediction("cpu", 1.0), make_prediction("cuda", 1.1))
    after = with_race(plan, workload, "always")
    assert after.notes == ("known", f"the real step was not timed: {said}")
    assert (after.decision, after.predictions, after.measured) == (plan.decision, plan.predictions, False)


def test_what_was_seen_takes_the_place_of_what_was_predicted(
    plan_of: PlanOf, make_prediction: Callable[..., Prediction], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = {"cpu": Seen(3.0, 2.0, 4.0)}
    monkeypatch.setattr(real_times, "lookup", lambda key, _: seen if key == "key" else {})
    plan = plan_of(make_prediction("cpu", 1.0), make_prediction("cuda", 1.1))
    after = with_seen(plan, 10)
    assert (plan.decision.device, after.decision.device, len(after.notes)) == ("cpu", "cuda", 2)
    assert after.decision.reason.endswith("(seen in earlier runs on cpu)")
    assert after.predictions["cpu"].total_seconds == 30.0
    measured = replace(plan, measured=True)
    assert with_seen(measured, 10) is measured
    seen.clear()
    assert with_seen(plan, 10) is plan
