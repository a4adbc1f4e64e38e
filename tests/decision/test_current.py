"""Which profile this machine is priced with: its calibration while it holds, else an estimate."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import placer
from placer import decision as deciding
from placer import profile
from placer.decision import current
from placer.pricing import CpuSpeeds
from placer.pricing import speeds as speed_reading
from placer.profile import Profile


@pytest.fixture(autouse=True)
def _speeds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a CPU: each test begins in an empty folder, and would read them in a new process."""
    speeds = CpuSpeeds(1e-6, 2e11, 3e10, 1e11, 2e10, region_seconds=2e-6)
    monkeypatch.setattr(speed_reading, "read_apart", lambda facts, threads: speeds)


def net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))


def test_a_calibration_takes_the_place_of_the_estimate(handmade_profile: Profile) -> None:
    found = deciding.current_profile()
    assert found.estimated
    assert deciding.current_profile() is found
    profile.save(handmade_profile)
    assert not deciding.current_profile().estimated
    assert deciding.current_profile().created == handmade_profile.created


@pytest.mark.parametrize(("quiet", "notices"), [("0", 1), ("", 1), ("1", 0)])
def test_the_notice_comes_once_and_can_be_silenced(quiet: str, notices: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLACER_QUIET", quiet)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        placements = [placer.choose(net(), (rows, 8)) for rows in (4, 400)]
        placer.explain(net(), (4, 8))
    assert [w.category for w in seen] == [placer.PlacerWarning] * notices
    assert {placement.provenance for placement in placements} == {"published"}


# --- every question is asked anew: what its answer depends on is looked at each time ----------------------------------


def choose(model: nn.Module, shape: Any = (4, 8), **options: Any) -> placer.Placement:
    return placer.choose(model, shape, **{"devices": "cpu", **options})


def ops(placement: placer.Placement) -> int:
    return len(placement.predictions["cpu"].priced.trace.calls)


def test_another_price_is_another_answer(calibrated: Profile) -> None:
    model = net()
    priced = [placer.Options(objective="cost", price={"cpu": price}) for price in (0.1, 0.2, 0.1)]
    answers = [choose(model, options=options) for options in priced]
    assert [answer.explain().devices["cpu"].dollars_per_hour for answer in answers] == [0.1, 0.2, 0.1]
    assert choose(model).decision.objective == "time"
    with pytest.raises(ValueError, match="no price is given for cpu"):
        choose(model, options=placer.Options(objective="cost", price={"cuda": 1.0}))


def test_a_profile_that_changed_or_is_gone_is_seen(calibrated: Profile, handmade_profile: Profile) -> None:
    model = net()
    before = choose(model)
    fits = tuple(replace(fit, interval={"base": 2.0}) for fit in handmade_profile.fits)
    profile.save(replace(handmade_profile, fits=fits))
    assert choose(model).predictions["cpu"].high > before.predictions["cpu"].high
    profile.default_path().unlink()
    with pytest.warns(placer.PlacerWarning, match="not calibrated"):
        assert choose(model).provenance == "published"


def test_whatever_changes_of_a_model_or_its_loss_is_seen(calibrated: Profile) -> None:
    layer, rounds = nn.Linear(8, 8), 1
    once, often = nn.Sequential(layer), nn.Sequential(*[layer] * 20)  # one module, called more than once
    assert ops(choose(often)) > 10 * ops(choose(once))

    def loss(output: Tensor) -> Tensor:
        for _ in range(rounds):
            output = output.square()
        return output.mean()

    model = net()
    plain = ops(choose(model, loss=loss))
    rounds = 5
    assert ops(choose(model, loss=loss)) > plain
    model[1]._forward = model[1].forward
    model[1].forward = lambda x: model[1]._forward(x).sin().cos()
    plain, more = ops(choose(net())), ops(choose(model))
    model.eval()
    assert ops(choose(model)) < plain < more


def test_what_is_not_torchs_in_an_optimizers_state_is_left_alone(calibrated: Profile) -> None:
    class Elsewhere:
        def to(self, unit: object) -> str:
            raise ValueError(f"{unit} is not a unit")

    model = net()
    optimizer = torch.optim.Adam(model.parameters())
    choose(model, optimizer=optimizer)
    weight = next(model.parameters())
    quantity = Elsewhere()
    optimizer.state[weight] = {"exp_avg": quantity}
    choose(model, optimizer=optimizer)
    assert optimizer.state[weight]["exp_avg"] is quantity


@pytest.mark.parametrize("arguments", [{}, {"what_if": "T4"}, {"profile": "intel-xeon-avx512-2-core"}])
def test_what_goes_wrong_with_a_profile_is_an_error_of_placers(
    arguments: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise FileNotFoundError("/proc/cpuinfo")

    monkeypatch.setattr(current, "estimated_profile", fail)
    monkeypatch.setattr(current, "named_profile", fail)
    with pytest.raises(placer.PlacerError, match="FileNotFoundError: /proc/cpuinfo"):
        placer.explain(net(), (4, 8), **arguments)


@pytest.mark.parametrize("arguments", [{"what_if": 3}, {"profile": 3}, {"profile": [None, 3]}])
def test_what_names_no_profile_is_a_wrong_argument(arguments: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match="must be a path, a name, a Profile or None, not 3"):
        placer.explain(net(), (4, 8), **arguments)
