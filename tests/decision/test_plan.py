"""When a plan is up to date."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from placer.decision import observed
from placer.decision.decision import decide
from placer.decision.plan import Plan
from placer.pricing.prediction import Prediction
from placer.profile.profile import Profile


def test_a_plan_is_current_until_steps_are_recorded(
    make_prediction: Callable[..., Prediction], handmade_profile: Profile
) -> None:
    found = {"cpu": make_prediction("cpu")}
    plan = Plan(decide(found, None), found, {}, handmade_profile, generation=observed.generation())
    assert plan.current is True
    observed.record({"workload": "another"})
    assert plan.current is False
    assert replace(plan, interpolated=True).current is True  # nothing was seen of a step that never ran
