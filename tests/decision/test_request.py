"""Every question is asked anew: what its answer depends on is looked at each time."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import placer
from placer import profile
from placer.profile.profile import Profile


def net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))


def choose(model: nn.Module, shape: Any = (4, 8), **options: Any) -> placer.Placement:
    options.setdefault("devices", "cpu")
    return placer.choose(model, shape, **options)


def ops(placement: placer.Placement) -> int:
    return len(placement.predictions["cpu"].priced.trace.calls)


@pytest.mark.parametrize(("right", "wrong"), [
    ({"steps": 1}, {"steps": True}), ({"steps": 1}, {"steps": 1.0}), ({"autocast": False}, {"autocast": 0}),
    ({}, {"shape": (4.0, 8)}), ({}, {"mode": []}), ({}, {"optimizer": 3}), ({}, {"profile": 3}), ({}, {"loss": 3}),
    ({}, {"data": {}}), ({}, {"modules": nn.Linear(1, 1)}), ({}, {"devices": 3}), ({}, {"threads": True}),
    ({}, {"shape": (2**40, 2**40)}),
])  # fmt: skip
def test_a_wrong_argument_raises_also_where_a_right_one_is_equal(
    right: dict[str, Any], wrong: dict[str, Any], calibrated: Profile
) -> None:
    model = net()
    choose(model, **right)
    with pytest.raises((ValueError, TypeError)):
        choose(model, **wrong)


def test_another_price_is_another_answer(calibrated: Profile) -> None:
    model = net()
    answers = [choose(model, objective="cost", price={"cpu": price}) for price in (0.1, 0.2, 0.1)]
    found = [answer.explain().devices["cpu"].dollars_per_hour for answer in answers]
    assert found == [0.1, 0.2, 0.1]
    assert choose(model).decision.objective == "time"
    with pytest.raises(ValueError, match="no price is given for cpu"):
        choose(model, objective="cost", price={"cuda": 1.0})


def test_a_profile_that_changed_or_is_gone_is_seen(
    calibrated: Profile, handmade_profile: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = net()
    before = choose(model)
    fits = tuple(dataclasses.replace(fit, interval={"base": 2.0}) for fit in handmade_profile.fits)
    profile.save(dataclasses.replace(handmade_profile, fits=fits))
    assert choose(model).predictions["cpu"].high > before.predictions["cpu"].high
    profile.default_path().unlink()
    with pytest.warns(placer.PlacerWarning, match="not calibrated"):
        assert choose(model).provenance == "published"
    monkeypatch.setenv("PLACER_STRICT", "1")
    with pytest.raises(placer.ProfileMissing):
        choose(model)


def test_whatever_of_a_model_changes_is_seen(calibrated: Profile) -> None:
    layer = nn.Linear(8, 8)
    once, often = nn.Sequential(layer), nn.Sequential(*[layer] * 20)  # one module, called more than once
    assert ops(choose(often)) > 10 * ops(choose(once))
    private = net()
    plain = ops(choose(private))
    private[1]._forward = private[1].forward
    private[1].forward = lambda x: private[1]._forward(x).sin().cos()
    assert ops(choose(private)) > plain
    flagged = net()
    plain = ops(choose(flagged))
    flagged.eval()
    assert ops(choose(flagged)) < plain


def test_what_a_loss_captured_is_seen(calibrated: Profile) -> None:
    model, rounds = net(), 1

    def loss(output: Tensor) -> Tensor:
        for _ in range(rounds):
            output = output.square()
        return output.mean()

    before = ops(choose(model, loss=loss))
    rounds = 5
    assert ops(choose(model, loss=loss)) > before


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
