"""When the host and the device do what: both as long as was predicted."""

from __future__ import annotations

import dataclasses
import itertools

import pytest
from torch import nn

from placer.explanation.build import MOST_SPANS, schedule
from placer.pricing.predict import predict
from placer.pricing.prediction import Prediction
from placer.profile.profile import Profile
from placer.tracing import trace as trace_workload
from placer.workload import Data, make_workload


def predictions(
    profile: Profile, model: nn.Module, shape: tuple[int, ...], mode: str = "train", data: Data = "host"
) -> dict[str, Prediction]:
    trace = trace_workload(make_workload(model, shape, mode=mode, data=data))
    return predict(trace, profile, devices=("cpu", "cuda"), data=data)


def test_prices_made_by_hand_have_no_schedule(make_prediction: object) -> None:
    assert callable(make_prediction)
    assert schedule({"cpu": make_prediction()}, "host") == {}


@pytest.mark.parametrize("mode", ["train", "infer"])
@pytest.mark.parametrize("data", ["host", "pinned", "device"])
def test_the_device_works_as_long_as_it_was_predicted_to(handmade_profile: Profile, mode: str, data: Data) -> None:
    model = nn.Sequential(nn.Linear(84, 64), nn.ReLU(), nn.Linear(64, 1))
    cpu, cuda = handmade_profile.fits
    pinned = {"copy/h2d/pinned/bytes_per_second": 2e10, "copy/h2d/pinned/seconds_per_tensor": 1e-6}
    both = (cpu, dataclasses.replace(cuda, rates={**cuda.rates, **pinned}))
    found = predictions(dataclasses.replace(handmade_profile, fits=both), model, (512, 84), mode, data)
    rows = schedule(found, data)
    for name, prediction in found.items():
        spans = rows[name]
        assert min(span.start for span in spans) >= 0.0
        for lane in {span.lane for span in spans}:
            mine = [span for span in spans if span.lane == lane]
            for before, after in itertools.pairwise(mine):
                assert after.start >= before.start + before.seconds - 1e-12
        if name == "cpu":
            end = max(span.start + span.seconds for span in spans)
            assert end == pytest.approx(prediction.step_seconds)
    assert {span.lane for span in rows["cuda"]} == {"host", "device"}
    kinds = {span.label for span in rows["cuda"] if not span.phase}
    assert ("copy in" in kinds) == (data != "device")
    assert ("copy out" in kinds) == (mode == "infer")


def test_spans_stay_few_however_deep_the_model(handmade_profile: Profile) -> None:
    deep = nn.Sequential(*[nn.Sequential(nn.Linear(8, 8), nn.ReLU()) for _ in range(60)])
    found = predictions(handmade_profile, deep, (4, 8))
    rows = schedule(found, "host")
    assert all(0 < len(spans) <= MOST_SPANS for spans in rows.values())
