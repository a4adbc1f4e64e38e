"""Where the choice turns by the batch: on both sides, against prices at every size, at the price of a few traces."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import placer
from placer import tracing
from placer.explanation import Explanation, Turn
from placer.explanation.turn import LARGEST
from placer.profile import Profile


def net(units: int = 256) -> nn.Module:
    return nn.Sequential(nn.Linear(84, units), nn.ReLU(), nn.Linear(units, 3))


def asked(model: Any, rows: int, own: Profile, **options: Any) -> Explanation:
    return placer.explain(model, (rows, 84), profile=own, mode="infer", **options)


@pytest.mark.parametrize("rows", [1, 8, 300, 20_000])
def test_it_is_found_from_both_sides_and_is_where_the_two_are_level(handmade_profile: Profile, rows: int) -> None:
    model = net()
    turn = asked(model, rows, handmade_profile).turn
    assert turn is not None
    assert turn.batch is not None
    assert (turn.below, turn.above) == ("cpu", "cuda")
    assert turn.smallest <= turn.batch <= turn.largest <= LARGEST
    level = asked(model, round(turn.batch), handmade_profile).devices
    assert level["cpu"].step_seconds == pytest.approx(level["cuda"].step_seconds, rel=0.1)
    below, above = (asked(model, round(turn.batch * factor), handmade_profile) for factor in (0.5, 2.0))
    assert (below.decision.device, above.decision.device) == ("cpu", "cuda")


def test_where_it_does_not_turn_the_sizes_that_were_asked_are_told(handmade_profile: Profile) -> None:
    small = asked(nn.Linear(84, 1), 32, handmade_profile)
    assert small.turn == Turn(None, "cpu", "cpu", 1, LARGEST)
    always = asked(net(20_000), 256, handmade_profile, data="device").turn
    assert always is not None
    assert (always.batch, always.below, always.above, always.smallest) == (None, "cuda", "cuda", 1)
    assert always.largest > 256


def test_it_counts_what_the_choice_counts(handmade_profile: Profile) -> None:
    """A short run has to repay the context first."""
    long, short = (asked(net(), 512, handmade_profile, steps=steps).turn for steps in (None, 10_000))
    assert long is not None
    assert short is not None
    assert long.batch is not None
    assert short.batch is not None
    assert short.batch > 2.0 * long.batch


def test_real_steps_of_one_size_move_it(calibrated: Profile) -> None:
    def turn() -> Turn:
        found = placer.explain(net(), (32, 84), mode="infer", what_if="T4").turn
        assert found is not None
        return found

    before = turn()
    assert before.batch is not None
    placement = placer.choose(net(), (32, 84), mode="infer", devices="cpu", move=False)
    placement.times.recent.extend([1.5 * placement.predictions["cpu"].step_seconds] * 20)
    placement.times._record()
    after = turn()
    assert after.batch is None or after.batch < before.batch
    assert after.above == before.above != "cpu"


class Fixed(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x @ torch.ones(84, 3) + torch.ones(32, 1)  # of no other batch size


class Two(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(84, 3)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self.layer(x).sum() + self.layer(y).sum()


def test_nothing_where_there_is_nothing_to_vary(handmade_profile: Profile) -> None:
    job = placer.Job([placer.Part("act", net(), (8, 84), count=3, mode="infer")])
    layer = nn.Linear(84, 3)

    def step(x: Tensor) -> None:
        layer(x)

    for found in (
        placer.explain(Two(), [(8, 84), (4, 84)], profile=handmade_profile),
        placer.explain(job, profile=handmade_profile),
        placer.explain(step, (8, 84), modules=layer, profile=handmade_profile),
        asked(net(), 8, handmade_profile, devices=["cpu"]),
        asked(net(), 8, handmade_profile, devices=["cuda"]),
    ):
        assert found.turn is None
    fixed = asked(Fixed(), 32, handmade_profile).turn
    assert fixed is None or fixed.batch is None


def test_it_takes_few_traces_and_choose_none(calibrated: Profile, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    own = tracing.trace

    def counting(workload: Any) -> Any:
        sizes.append(workload.args[0].shape[0])
        return own(workload)

    monkeypatch.setattr(tracing, "trace", counting)
    for rows in (1, 32, 65_536, 1_000_000):
        sizes.clear()
        found = asked(net(), rows, calibrated)
        advised = rows * 4
        assert len([size for size in sizes if size not in (rows, advised)]) <= 7
        assert found.turn is not None
    sizes.clear()
    placer.choose(net(), (32, 84), move=False)
    assert sizes == [32]


def test_it_is_plain_data(handmade_profile: Profile) -> None:
    found = asked(net(), 32, handmade_profile)
    values = json.loads(found.to_json())
    assert values["schema"] == 1
    assert set(values["turn"]) == {"batch", "below", "above", "smallest", "largest"}
    again = Explanation.from_dict(values)
    assert again.turn == found.turn
    assert again.usual_errors == found.usual_errors
    assert str(again) == str(found)
    del values["turn"]
    assert Explanation.from_dict(values).turn is None
