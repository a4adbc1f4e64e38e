"""What an explanation holds, and its JSON."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
from collections.abc import Callable
from typing import Any

import pytest
from explained import explained
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import placer
from placer.errors import PlacerError
from placer.explanation import Explanation, LayerRow, Turn
from placer.explanation.build import MOST_SPANS
from placer.explanation.layers import gathered, lines, tree
from placer.pricing.prediction import Prediction
from placer.profile.profile import Profile

Make = Callable[..., Prediction]


@pytest.fixture
def two(make_prediction: Make) -> Explanation:
    weak = {"one_time_seconds": 1.5, "sources": ("calibrated",) * 4 + ("guess",), "coverage": 0.8}
    predictions = {
        "cpu": make_prediction("cpu", 2e-3, compute=1.5e-3),
        "cuda": make_prediction("cuda", 1e-3, compute=0.2e-3, **weak),
    }
    return explained(predictions, notes=("a note",))


def test_json_is_schema_1_and_is_read_again(two: Explanation) -> None:
    """An entry of an earlier version is, too."""
    two = dataclasses.replace(two, turn=Turn(57.3, "cpu", "cuda", 1, 65_536))
    values = json.loads(two.to_json())
    assert (values["schema"], values["choice"], values["verdict"]) == (1, "cuda", "cuda")
    assert values["break_even_steps"] == 1501
    again = Explanation.from_dict(values)
    assert again == two
    assert str(again) == str(two)
    for name in ("turn", "bottlenecks", "verdict"):
        assert values.pop(name)
    for row in values["devices"].values():
        del row["one_time"], row["bounded_by"], row["provenance"]
    read = Explanation.from_dict(values)
    assert (read.turn, read.bottlenecks) == (None, ())
    assert {row.provenance for row in read.devices.values()} == {"calibrated"}
    assert str(read).startswith("cuda: 2.00×")


@pytest.mark.parametrize("change", [{"schema": 2}, {"devices": {"cpu": {}}}, {"devices": 3}, {"choice": None}])
def test_another_schema_or_a_torn_entry_is_refused(two: Explanation, change: dict[str, Any]) -> None:
    with pytest.raises(PlacerError):
        Explanation.from_dict({**two.to_dict(), **change})


def test_layers_and_ops_add_up_to_the_compute_of_a_step_and_of_the_parts_of_a_job(
    two: Explanation, handmade_profile: Profile
) -> None:
    assert [row.phase for row in two.layers] == ["forward", "backward", "forward", "forward", "optimizer"]
    net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
    parts = [placer.Part("act.fast", net, (4, 8), count=7, mode="infer"), placer.Part("learn", net, (64, 8), count=2)]
    job = placer.explain(placer.Job(parts), profile=handmade_profile)
    assert {row.name.partition(".")[0] for row in job.layers} == {"act fast", "learn"}
    for explanation in (two, job):
        for name, device in explanation.devices.items():
            compute = pytest.approx(device.components["compute"])
            for rows in (explanation.layers, explanation.ops):
                assert math.fsum(row.devices[name] for row in rows) == compute
    for name, device in job.devices.items():
        assert sum(part.seconds(name) for part in job.parts) == pytest.approx(device.step_seconds)
        assert sum(job.bounds[name].values()) == pytest.approx(device.components["compute"])
    assert next(row.count for row in job.ops if row.op.endswith("relu")) == 9
    assert Explanation.from_dict(job.to_dict()) == job


@pytest.mark.parametrize("mode", ["train", "infer"])
@pytest.mark.parametrize("data", ["host", "pinned", "device"])
def test_the_timeline_lasts_as_long_as_was_predicted(handmade_profile: Profile, mode: str, data: str) -> None:
    cpu, cuda = handmade_profile.fits
    pinned = {"copy/h2d/pinned/bytes_per_second": 2e10, "copy/h2d/pinned/seconds_per_tensor": 1e-6}
    both = (cpu, dataclasses.replace(cuda, rates={**cuda.rates, **pinned}))
    found = placer.explain(
        nn.Sequential(nn.Linear(84, 64), nn.ReLU(), nn.Linear(64, 1)),
        (512, 84),
        mode=mode,
        data=data,
        profile=dataclasses.replace(handmade_profile, fits=both),
    )
    for spans in found.timeline.values():
        assert min(span.start for span in spans) >= 0.0
        for lane in ("host", "device"):
            for before, after in itertools.pairwise([span for span in spans if span.lane == lane]):
                assert after.start >= before.start + before.seconds - 1e-12
    end = max(span.start + span.seconds for span in found.timeline["cpu"])
    assert end == pytest.approx(found.devices["cpu"].step_seconds)
    assert {span.lane for span in found.timeline["cuda"]} == {"host", "device"}
    kinds = {span.label for span in found.timeline["cuda"] if not span.phase}
    assert ("copy in" in kinds, "copy out" in kinds) == (data != "device", data != "device" and mode == "infer")


def test_spans_stay_few_however_deep_the_model(handmade_profile: Profile) -> None:
    deep = nn.Sequential(*[nn.Sequential(nn.Linear(8, 8), nn.ReLU()) for _ in range(60)])
    for spans in placer.explain(deep, (4, 8), profile=handmade_profile).timeline.values():
        assert 0 < len(spans) <= MOST_SPANS


# Layers as the tree of the model.


def rows(*parts: tuple[str, str, float]) -> list[LayerRow]:
    return [LayerRow(name, phase, {"cpu": seconds, "cuda": 2 * seconds}) for name, phase, seconds in parts]


def test_layers_are_nested_as_the_model_with_small_ones_gathered_and_those_that_are_alike_one_row() -> None:
    alike = [(f"a.{n}.{part}", s / 2) for n, s in enumerate((10.0, 11.0, 9.0, 63.0)) for part in ("x", "y")]
    parts = [*alike, ("a.z", 4.0), ("s1", 0.5), ("s2.deep", 0.5), ("", 2.0)]
    shown = lines(gathered(tree(rows(*((name, "forward", seconds) for name, seconds in parts)))))
    assert [(depth, node.label, node.seconds["cpu"]) for depth, node in shown] == [
        (0, "(whole model)", 100.0),
        (1, "a", 97.0),
        (2, "0-2 (3 alike)", 30.0),
        (3, "x", 15.0),
        (3, "y", 15.0),
        (2, "3", 63.0),
        (3, "x", 31.5),
        (3, "y", 31.5),
        (2, "z", 4.0),
        (1, "(other layers)", 1.0),
        (1, "(itself)", 2.0),
    ]


names = st.lists(st.sampled_from(["a", "b", "0", "1", "2", "3"]), max_size=4).map(".".join)


@given(st.lists(st.tuples(names, st.sampled_from(["forward", "backward"]), st.floats(0, 10)), max_size=20))
def test_the_rows_below_a_row_add_up_to_it(parts: list[tuple[str, str, float]]) -> None:
    found = list(lines(gathered(tree(rows(*parts)))))
    for index, (depth, node) in enumerate(found):
        below = []
        for deeper, other in found[index + 1 :]:
            if deeper <= depth:
                break
            if deeper == depth + 1:
                below.append(other.seconds["cpu"])
        if below:
            assert sum(below) == pytest.approx(node.seconds["cpu"], rel=1e-9, abs=1e-9)
    whole = found[0][1].seconds.get("cpu", 0.0)
    assert whole == pytest.approx(sum(seconds for _, _, seconds in parts))
