from __future__ import annotations

import dataclasses
import gc
import math
import weakref
from collections.abc import Callable

import pytest
import torch
from torch import nn

from placer.decision import plan_cache as plans_module
from placer.decision.decision import decide
from placer.decision.plan import Plan
from placer.decision.plan_cache import PlanCache
from placer.pricing.prediction import Prediction
from placer.profile.profile import Profile
from placer.workload.signature import tensor_signature


@pytest.fixture
def plan(make_prediction: Callable[..., Prediction], handmade_profile: Profile) -> Plan:
    predictions = {"cpu": make_prediction("cpu")}
    return Plan(decide(predictions, None), predictions, {}, handmade_profile)


def net(width: int = 8) -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, 2))


def test_the_same_model_and_question_are_recognised(plan: Plan) -> None:
    plans, model = PlanCache(), net()
    assert plans.get(model, "q") is None
    plans.put(model, "q", plan)
    assert plans.get(model, "q") is plan
    assert plans.get(model, "another question") is None


def test_another_instance_of_the_architecture_is_recognised(plan: Plan) -> None:
    plans = PlanCache()
    plans.put(net(), "q", plan)
    assert plans.get(net(), "q") is plan
    assert plans.get(net(16), "q") is None


@pytest.mark.parametrize("change", [
    lambda m: m.eval(),
    lambda m: m[0].eval(),
    lambda m: m[0].requires_grad_(False),
    lambda m: m.half(),
    lambda m: m.append(nn.Tanh()),
    lambda m: m.__setitem__(1, nn.Tanh()),
    lambda m: m.__setattr__("steps", 3),
])  # fmt: skip
def test_a_changed_model_is_noticed(plan: Plan, change: Callable[[nn.Sequential], object]) -> None:
    plans, model = PlanCache(), net()
    plans.put(model, "q", plan)
    change(model)
    assert plans.get(model, "q") is None


def test_a_layer_that_reuses_a_dead_ones_address_is_noticed(plan: Plan) -> None:
    plans, model = PlanCache(), net()
    for width in range(9, 46):  # never a width again
        plans.put(model, "q", plan)
        del model[2], model[0]  # their addresses are free now
        model.insert(0, nn.Linear(4, width))
        model.append(nn.Linear(width, 2))
        assert plans.get(model, "q") is None


def test_models_are_not_kept_alive(plan: Plan) -> None:
    plans, model = PlanCache(), net()
    plans.put(model, "q", plan)
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None
    assert len(plans._by_model) == 0


def test_a_known_model_can_still_be_moved_by_swapping(plan: Plan) -> None:
    plans, model = PlanCache(), net()
    plans.put(model, "q", plan)
    parameters = list(model.parameters())
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        model.to("meta")
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)
    assert all(a is b for a, b in zip(parameters, model.parameters(), strict=True))


def test_memory_is_bounded(plan: Plan) -> None:
    plans, model = PlanCache(), net()
    for question in range(3 * plans_module.PER_PROCESS):
        plans.put(model, question, plan)
    assert len(plans._by_signature) == plans_module.PER_PROCESS
    assert len(plans._by_model[model].plans) == plans_module.PER_MODEL
    newest = 3 * plans_module.PER_PROCESS - 1  # the newest are kept, of an architecture and of a model
    kept = [plans.get(net(), newest - age) for age in (0, plans_module.PER_PROCESS - 1, plans_module.PER_PROCESS)]
    assert kept == [plan, plan, None]
    assert list(plans._by_model[model].plans)[-1] == newest


def test_architectures_are_equal_by_their_parts_not_by_a_hash() -> None:
    one, same, other = (plans_module._Architecture(model) for model in (net(), net(), net(16)))
    assert one == one
    assert one == same
    assert one != "a model"
    other._hash = one._hash
    assert one != other


def test_a_question_in_the_same_words_is_answered_while_the_model_is_what_it_was(plan: Plan) -> None:
    plans, model = PlanCache(), net()

    def again(words: object, known: PlanCache = plans) -> object:
        return known.again(model, words, lambda meaning: ("q", meaning))

    plans.understood(model, "words", "meaning")
    assert again("words") is None  # nothing is known of the model yet
    plans.put(model, ("q", "meaning"), plan)
    assert again("words") is None
    plans.understood(model, "words", "meaning")
    plans.understood(model, "other words", "something else")
    plans.understood(model, ["no hash"], "meaning")
    assert again("words") == (plan, "meaning")
    assert again("other words") is None
    assert again(["no hash"]) is None
    for number in range(3 * plans_module.PER_MODEL):
        plans.understood(model, f"words {number}", "meaning")
    assert len(plans._by_model[model].meanings) == plans_module.PER_MODEL
    plans.understood(model, "words", "meaning")
    model.eval()
    assert again("words") is None


def test_plans_between_which_a_size_lies_are_found_while_they_are_kept(plan: Plan) -> None:
    def asked(rows: int) -> tuple[object, ...]:
        return ("q", tensor_signature(torch.empty(rows, 4)))

    plans, model = PlanCache(), net()
    assert plans.between(model, asked(4)) is None
    small, large = dataclasses.replace(plan, key="small"), dataclasses.replace(plan, key="large")
    plans.put(model, asked(2), small)
    plans.put(model, asked(8), large)
    assert plans.between(model, asked(4)) == (small, large, math.log(2), math.log(2))
    assert plans.between(model, asked(9)) is None
    assert plans.between(model, ("another", *asked(4)[1:])) is None
    plans.put(model, asked(5), dataclasses.replace(plan, interpolated=True))
    assert plans.get(model, asked(5)).interpolated
    assert plans.between(model, asked(4))[1] is large  # nothing is interpolated from what was interpolated
    for number in range(plans_module.PER_PROCESS):
        plans.put(model, number, plan)
    assert plans.between(model, asked(4)) is None
    plans.clear()
    assert (plans.get(model, 0), plans._by_sizes) == (None, {})


def test_the_device_is_known_only_when_it_is_one(plan: Plan) -> None:
    plans, model = PlanCache(), net()
    plans.put(model, "q", plan)
    assert plans.device_of(model) == torch.device("cpu")
    model[0].to("meta")
    assert plans.get(model, "q") is plan  # the device is no part of the architecture
    assert plans.device_of(model) is None
