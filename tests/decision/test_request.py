"""A question asked in the same words: everything its answer depends on is looked at all the same."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import placer
from placer import api, machine, profile, tracing
from placer.decision import ranks, request
from placer.profile.profile import Profile

pytestmark = pytest.mark.usefixtures("no_plans")


@pytest.fixture
def traces(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Grows by one with every trace."""
    seen: list[object] = []
    real = tracing.trace
    monkeypatch.setattr(tracing, "trace", lambda workload: (seen.append(1), real(workload))[1])
    return seen


@pytest.fixture
def understood(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Grows by one whenever the arguments are checked and understood anew."""
    seen: list[object] = []
    real = api.make_workload
    monkeypatch.setattr(api, "make_workload", lambda *a, **k: (seen.append(1), real(*a, **k))[1])
    return seen


def net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))


def choose(model: nn.Module, shape: Any = (4, 8), **options: Any) -> placer.Placement:
    options.setdefault("devices", "cpu")
    return placer.choose(model, shape, **options)


@pytest.mark.parametrize("options", [
    {}, {"steps": 3, "data": "pinned"}, {"optimizer": "SGD", "mode": "train"}, {"loss": torch.sum},
    {"shape": None, "example": {"input": torch.ones(4, 8)}}, {"devices": ["cpu"]}, {"measure": "unsure"},
    {"objective": "cost", "price": {"cpu": 0.1}}, {"objective": "energy", "watts": {"cpu": 20.0}},
])  # fmt: skip
def test_the_same_words_are_understood_once(
    options: dict[str, Any], calibrated: Profile, understood: list[object]
) -> None:
    model = net()
    first, second = choose(model, **options), choose(model, **options)
    assert len(understood) == 1
    assert second is not first
    assert (second.decision, second.predictions) == (first.decision, first.predictions)
    assert second.explain().to_dict() == first.explain().to_dict()


@pytest.mark.parametrize(("right", "wrong"), [
    ({"steps": 1}, {"steps": True}), ({"steps": 1}, {"steps": 1.0}), ({"autocast": False}, {"autocast": 0}),
    ({}, {"shape": (4.0, 8)}), ({}, {"mode": []}), ({}, {"optimizer": 3}), ({}, {"profile": 3}), ({}, {"loss": 3}),
    ({}, {"data": {}}), ({}, {"modules": nn.Linear(1, 1)}), ({}, {"devices": 3}), ({}, {"threads": True}),
])  # fmt: skip
def test_a_wrong_argument_raises_also_where_a_right_one_is_equal(
    right: dict[str, Any], wrong: dict[str, Any], calibrated: Profile
) -> None:
    model = net()
    for _ in range(2):
        choose(model, **right)
    with pytest.raises((ValueError, TypeError)):
        choose(model, **wrong)


def test_another_objective_or_price_is_another_question(calibrated: Profile, traces: list[object]) -> None:
    model = net()
    answers = [choose(model, objective="cost", price={"cpu": price}) for price in (0.1, 0.2, 0.1)]
    found = [answer.explain().devices["cpu"].dollars_per_hour for answer in answers]
    assert found == [0.1, 0.2, 0.1]
    assert choose(model).decision.objective == "time"
    with pytest.raises(ValueError, match="no price is given for cpu"):
        choose(model, objective="cost", price={"cuda": 1.0})


def test_an_override_is_seen(calibrated: Profile, monkeypatch: pytest.MonkeyPatch) -> None:
    model = net()
    choose(model), choose(model)
    monkeypatch.setenv("PLACER_DEVICE", "cpu")
    assert choose(model).reason == "cpu: set by PLACER_DEVICE"
    monkeypatch.setenv("PLACER_DEVICE", "no such device")
    with pytest.raises(ValueError, match="PLACER_DEVICE"):
        choose(model)


def test_a_profile_that_changed_or_is_gone_is_seen(
    calibrated: Profile, handmade_profile: Profile, traces: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = net()
    choose(model), choose(model)
    profile.save(dataclasses.replace(handmade_profile, seconds=11.0))
    choose(model)
    assert len(traces) == 2
    profile.default_path().unlink()
    with pytest.warns(placer.PlacerWarning, match="not calibrated"):
        assert choose(model).provenance == "published"
    monkeypatch.setenv("PLACER_STRICT", "1")
    with pytest.raises(placer.ProfileMissing):
        choose(model)


def test_training_flags_count_where_the_mode_is_not_said(calibrated: Profile) -> None:
    model = net()
    assert "optimizer" in {phase(c) for c in calls(choose(model))}
    choose(model)
    model.eval()
    assert {phase(c) for c in calls(choose(model))} == {"forward"}
    model.train()
    assert "optimizer" in {phase(c) for c in calls(choose(model))}


def calls(placement: placer.Placement) -> Any:
    return placement.predictions["cpu"].priced.trace.calls


def phase(call: Any) -> str:
    return str(call.phase)


def test_switches_of_torch_and_of_the_optimizer_count(calibrated: Profile, traces: list[object]) -> None:
    model = net()
    optimizer = torch.optim.Adam(model.parameters())
    choose(model, optimizer=optimizer), choose(model, optimizer=optimizer)
    assert len(traces) == 1
    optimizer.param_groups[0]["amsgrad"] = True
    choose(model, optimizer=optimizer)
    assert len(traces) == 2
    torch.set_float32_matmul_precision("high")
    choose(model, optimizer=optimizer)
    assert len(traces) == 3


def test_what_a_loss_captured_counts(calibrated: Profile, traces: list[object]) -> None:
    model, target = net(), torch.zeros(4, 1)

    def loss(output: Tensor) -> Tensor:
        return nn.functional.mse_loss(output, target)

    choose(model, loss=loss), choose(model, loss=loss)
    assert len(traces) == 1
    target = torch.zeros(4, 1, dtype=torch.float64)
    choose(model, loss=loss)
    assert len(traces) == 2


def test_a_run_that_became_distributed_is_seen(calibrated: Profile, monkeypatch: pytest.MonkeyPatch) -> None:
    model, store = net(), torch.distributed.HashStore()
    choose(model), choose(model)
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr(ranks, "_store", lambda: store)
    choose(model)
    assert store.num_keys() == 1


def test_optimizer_state_is_moved_every_time(calibrated: Profile) -> None:
    model = net()
    optimizer = torch.optim.Adam(model.parameters())
    choose(model, optimizer=optimizer)
    weight = next(model.parameters())
    optimizer.state[weight] = {"exp_avg": _Elsewhere()}
    choose(model, optimizer=optimizer)
    assert optimizer.state[weight]["exp_avg"] == "moved to cpu"


class _Elsewhere:
    def to(self, device: torch.device) -> str:
        return f"moved to {device}"


def test_where_a_model_is_counts_only_where_it_makes_a_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "accelerators", lambda: ("cuda", "cuda:1"))
    monkeypatch.setattr(machine, "has_context", lambda device: device == "cuda:1")
    asked = [request._where(lambda home=home: home, short=False) for home in ("cpu", "cuda", "cuda:1")]
    assert asked == [None, None, "cuda:1"]  # of equal ones, it stays on its own
    assert request._where(lambda: "cuda", short=True) == ("cuda", (False, True))  # its move counts
    monkeypatch.setattr(machine, "accelerators", lambda: ("cuda:1",))
    assert request._where(lambda: pytest.fail("there is no other"), short=False) is None


def test_a_size_between_two_that_were_traced_is_looked_up(handmade_profile: Profile, traces: list[object]) -> None:
    fits = tuple(dataclasses.replace(fit, interval={"base": 0.15}) for fit in handmade_profile.fits)
    profile.save(dataclasses.replace(handmade_profile, fits=fits))
    model = net()
    for rows in (100, 150, 120):
        found = choose(model, (rows, 8))
    assert found.predictions["cpu"].interpolated
    assert choose(model, (120, 8), measure="never").decision is found.decision
    assert len(traces) == 2
    for options in ({"measure": "always"}, {"threads": "tune"}):
        assert not choose(model, (130, 8), **options).predictions["cpu"].interpolated
