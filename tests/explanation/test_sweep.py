"""The answers over batch sizes and numbers of steps, and where the choice turns."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from explained import table_of
from torch import Tensor, nn

import placer
from placer import tracing
from placer.calibration.benchmarks.probe import Apply
from placer.explanation import Explanation, Sweep, Turn
from placer.explanation.turn import LARGEST
from placer.pricing.prediction import Prediction
from placer.profile import Profile

Make = Callable[..., Prediction]


def swept(make: Make, sizes: tuple[int, ...], gpu: float = 1e-3) -> Sweep:
    """The CPU takes time in proportion to the batch, the accelerator always the same."""
    tables = {size: table_of({"cpu": make("cpu", size * 1e-4), "cuda": make("cuda", gpu)}) for size in sizes}
    return Sweep("batch", tables)


def test_the_choice_turns_where_the_curves_meet_and_a_tie_is_told(make_prediction: Make) -> None:
    clear = swept(make_prediction, (1, 4, 16, 64))
    assert clear.crossovers() == [(1, "cpu"), (16, "cuda")]
    assert clear.turn(16) == pytest.approx(10.0, rel=1e-6)
    assert clear.turn(1) is None
    assert clear.verdict() == "cpu first; cuda from batch 16 on."
    tied = swept(make_prediction, (8, 10, 16), 1.02e-3)
    assert tied.verdict() == "cpu first; about the same from batch 10 on; cuda from batch 16 on."
    text = tied.to_text(width=100)
    assert "→ about the same" in text
    assert "→ cuda" in text
    assert [row["verdict"] for row in json.loads(tied.to_json())["rows"]] == ["cpu", "about the same", "cuda"]
    assert Sweep("batch", {10: tied.rows[10]}).verdict() == "about the same at every batch size."


def test_where_no_device_has_room_none_is_chosen(make_prediction: Make) -> None:
    def row(size: int) -> dict[str, Prediction]:
        return {
            "cpu": make_prediction("cpu", size * 1e-4, fits=size < 64),
            "cuda": make_prediction("cuda", 1e-3, fits=size < 16),
        }

    sweep = Sweep("batch", {size: table_of(row(size)) for size in (4, 16, 64)})
    assert sweep.verdict() == "cpu first; fits nowhere from batch 64 on."
    assert sweep.crossovers() == [(4, "cpu")]
    assert "→ fits nowhere" in sweep.to_text(width=100)


def test_over_steps_the_one_time_cost_counts(make_prediction: Make) -> None:
    found = {"cpu": make_prediction("cpu", 2e-3), "cuda": make_prediction("cuda", 1e-3, one_time_seconds=1.0)}
    table = table_of(found)
    sweep = Sweep("steps", {steps: table.repeated(steps) for steps in (1, 512, 2048)})
    assert [decision.device for decision in sweep.decisions.values()] == ["cpu", "cpu", "cuda"]
    assert sweep.times("cuda")[0] == (pytest.approx(1.001), pytest.approx(1 + 1e-3 / 1.2), pytest.approx(1.0012))
    assert 512 < (sweep.turn(2048) or 0.0) < 2048
    assert sweep.verdict() == "cpu first; cuda from 2,048 steps on."
    values = json.loads(sweep.to_json())
    assert (values["sweep"], values["crossovers"][-1]) == ("steps", {"steps": 2048, "choice": "cuda"})


# Where the choice turns by the batch: on both sides, against prices at every size, at the price of a few traces.


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


def test_no_choice_turns_at_a_size_that_fits_nowhere() -> None:
    wide = nn.Linear(84, 400_000, device="meta")  # of 16,384 rows it makes 26 GB
    turn = placer.explain(wide, (1024, 84), mode="infer", profile="amd-epyc-2-core", what_if="T4").turn
    assert turn is not None
    assert turn.largest == 1024


def test_it_counts_what_the_choice_counts(handmade_profile: Profile) -> None:
    """A short run has to repay the context first."""
    long, short = (asked(net(), 512, handmade_profile, steps=steps).turn for steps in (None, 10_000))
    assert long is not None
    assert short is not None
    assert (short.batch or 0.0) > 2.0 * (long.batch or math.inf)


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


def test_nothing_where_there_is_nothing_to_vary(handmade_profile: Profile) -> None:
    job = placer.Job([placer.Part("act", net(), (8, 84), count=3, mode="infer")])
    layer = nn.Linear(84, 3)

    def step(x: Tensor) -> None:
        layer(x)

    for found in (
        placer.explain(job, profile=handmade_profile),
        placer.explain(step, (8, 84), modules=layer, profile=handmade_profile),
        asked(net(), 8, handmade_profile, devices=["cpu"]),
        asked(net(), 8, handmade_profile, devices=["cuda"]),
    ):
        assert found.turn is None
    of_one_size = Apply(lambda x: x @ torch.ones(84, 3) + torch.ones(32, 1))
    fixed = asked(of_one_size, 32, handmade_profile).turn
    assert fixed is None or fixed.batch is None


def test_it_takes_few_traces_and_choose_none(calibrated: Profile, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    trace = tracing.trace

    def counting(workload: Any) -> Any:
        sizes.append(workload.args[0].shape[0])
        return trace(workload)

    monkeypatch.setattr(tracing, "trace", counting)
    for rows in (1, 1_000_000):
        sizes.clear()
        assert asked(net(), rows, calibrated).turn is not None
        assert len([size for size in sizes if size not in (rows, rows * 4)]) <= 7  # beside it, and what is advised
    sizes.clear()
    placer.choose(net(), (32, 84), move=False)
    assert sizes == [32]
