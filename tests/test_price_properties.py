"""What holds of every price, whatever the network and its shapes."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from random import Random

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_modules import random_module
from torch import Tensor, nn

from placer import profile as profiles
from placer.costs import CostModel
from placer.predict import predict
from placer.prediction import Prediction
from placer.profile import DeviceFit, Profile
from placer.tracing import trace
from placer.tracing.trace import Trace
from placer.workload import make_workload

RECORD = Path(__file__).resolve().parent.parent / "calibration" / "records" / "cpu-2-core" / "profile.json"


@pytest.fixture(scope="module")
def measured() -> Profile:
    """A real machine's profile."""
    return profiles.load(RECORD, samples=False)


def priced(model: nn.Module, shape: tuple[int, ...], mode: str, profile: Profile) -> Prediction:
    example = torch.empty(shape, device="meta")
    traced = trace(make_workload(model, example=example, mode=mode))
    return predict(traced, profile, devices=("cpu",), threads=2)["cpu"]


def check(found: Prediction) -> None:
    assert 0.0 < found.low <= found.step_seconds <= found.high < math.inf
    assert all(0.0 <= seconds < math.inf for seconds in found.priced.seconds)
    assert sum(found.components.values()) == pytest.approx(found.step_seconds)
    assert found.peak_memory_bytes >= 0
    assert 0.0 <= found.coverage <= 1.0


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32), batch=st.integers(2, 300), mode=st.sampled_from(["train", "infer"]))
def test_random_modules_are_traced_and_priced(seed: int, batch: int, mode: str, measured: Profile) -> None:
    model, shape = random_module(Random(seed))
    trains = any(p.requires_grad for p in model.parameters())
    check(priced(model, (batch, *shape), mode if trains else "infer", measured))


# --- shapes that hold nothing -------------------------------------------------------------------------------------


class Apply(nn.Module):
    """A function with a parameter, so that it can be trained."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function
        self.weight = nn.Parameter(torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x) * self.weight


def images(function: Callable[..., Tensor], *rest: object) -> nn.Module:
    return Apply(lambda x: function(x, *rest))


EMPTY: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "linear": (lambda: nn.Linear(8, 3), (0, 8)),
    "no features": (lambda: Apply(lambda x: x.relu()), (4, 0)),
    "convolution": (lambda: nn.Conv2d(3, 4, 3), (0, 3, 8, 8)),
    "transposed convolution": (lambda: nn.ConvTranspose2d(2, 3, 3), (0, 2, 8, 8)),
    "convolution in three dimensions": (lambda: nn.Conv3d(2, 2, 2), (0, 2, 4, 4, 4)),
    "batch norm": (lambda: nn.BatchNorm2d(4).eval(), (0, 4, 8, 8)),
    "layer norm": (lambda: nn.LayerNorm(3), (0, 3)),
    "pooling": (lambda: images(nn.functional.avg_pool2d, 2), (0, 2, 8, 8)),
    "lstm": (lambda: nn.LSTM(6, 4, 2, batch_first=True), (0, 5, 6)),
    "lstm over no time": (lambda: nn.LSTM(6, 4, batch_first=True), (2, 0, 6)),
    "cell": (lambda: nn.GRUCell(6, 4), (0, 6)),
    "encoder": (lambda: nn.TransformerEncoderLayer(8, 2, 8, batch_first=True), (0, 3, 8)),
    "attention": (lambda: Apply(lambda x: nn.functional.scaled_dot_product_attention(x, x, x)), (0, 2, 4, 4)),
    "softmax": (lambda: Apply(lambda x: x.softmax(-1)), (0, 5)),
    "sort": (lambda: Apply(lambda x: x.sort(-1)[0]), (0, 5)),
    "scan": (lambda: Apply(lambda x: x.cumsum(0)), (0, 5)),
    "reduction": (lambda: Apply(lambda x: x.sum()), (0, 5)),
    "matrix product": (lambda: Apply(lambda x: x @ x.transpose(-1, -2)), (0, 4, 4)),
    "inverse": (lambda: Apply(torch.linalg.inv), (0, 4, 4)),
    "transform": (lambda: Apply(lambda x: torch.fft.rfft(x).abs()), (0, 12)),
    "distances": (lambda: Apply(lambda x: torch.cdist(x, x)), (0, 5)),
    "concatenation": (lambda: Apply(lambda x: torch.cat([x, x])), (0, 5)),
    "index": (lambda: Apply(lambda x: x[:, torch.tensor([0, 1])]), (0, 5)),
    "scalar": (lambda: Apply(lambda x: x * 2 + 1), ()),
    "one element": (lambda: Apply(lambda x: x.exp().log()), (1,)),
    "nothing at all": (lambda: nn.Identity(), (0,)),
    "a scalar and nothing to do": (lambda: nn.Identity(), ()),
}


@pytest.mark.parametrize("name", EMPTY)
def test_empty_and_scalar_inputs_have_a_price_above_zero(
    name: str, measured: Profile, handmade_profile: Profile
) -> None:
    build, shape = EMPTY[name]
    model = build()
    for mode in ("train", "infer") if list(model.parameters()) else ("infer",):
        for profile in (measured, handmade_profile):
            check(priced(model, shape, mode, profile))


@pytest.mark.parametrize("data", ["host", "pinned", "device"])
def test_a_step_without_ops_takes_time_on_every_device(data: str, handmade_profile: Profile) -> None:
    empty = Trace((), "infer", (), (), (), ())
    for name in ("cpu", "cuda"):
        found = predict(empty, handmade_profile, devices=(name,), data=data)[name]
        check(found)


@pytest.mark.parametrize("missing", ["dispatch_seconds", "flops/float32", "bytes_per_second"])
def test_a_fit_without_a_floor_is_refused(missing: str, handmade_profile: Profile) -> None:
    fit = handmade_profile.fit("cpu")
    for rates in ({k: v for k, v in fit.rates.items() if k != missing}, {**fit.rates, missing: 0.0}):
        with pytest.raises(profiles.ProfileError, match=rf"cannot price on cpu: it has no {missing}; run: placer"):
            CostModel(replace(fit, rates=rates))


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_whatever_numbers_a_profile_holds_a_price_is_a_number_or_a_profile_error(
    data: st.DataObject, handmade_profile: Profile
) -> None:
    positive = st.floats(0.0, 1e300)
    fit = handmade_profile.fit("cpu")
    strange = DeviceFit(
        "cpu", fit.threads,
        {name: data.draw(positive, name) for name in fit.rates}, {},
        {name: data.draw(positive, name) for name in ("step", "forward_op", "python_call")},
        {name: data.draw(positive, name) for name in ("base", "ops")},
    )  # fmt: skip
    profile = replace(handmade_profile, fits=(strange,))
    with contextlib.suppress(profiles.ProfileError):
        check(priced(nn.Linear(4, 4), (8, 4), "infer", profile))


# --- larger batches -----------------------------------------------------------------------------------------------

BATCHES = tuple(4**n for n in range(9))  # 1 to 65,536
NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "regression": (
        lambda: nn.Sequential(nn.Linear(2, 20), nn.ReLU(), nn.Linear(20, 5), nn.ReLU(), nn.Linear(5, 1)),
        (2,),
    ),
    "ode": (lambda: nn.Sequential(nn.Linear(3, 100), nn.Tanh(), nn.Linear(100, 3)), (3,)),
    "wide": (lambda: nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.LayerNorm(1024), nn.Linear(1024, 10)), (256,)),
    "conv1d": (
        lambda: nn.Sequential(
            nn.Conv1d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool1d(2), nn.Flatten(), nn.Linear(16 * 42, 1)
        ),
        (1, 84),
    ),
    "conv2d": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
            nn.Linear(8, 10),
        ),
        (3, 16, 16),
    ),
    "lstm": (lambda: nn.LSTM(8, 32, batch_first=True), (20, 8)),
    "gru": (lambda: nn.GRU(8, 16, 2, batch_first=True), (10, 8)),
    "encoder": (lambda: nn.TransformerEncoderLayer(32, 4, 64, batch_first=True), (16, 32)),
    "dropout": (lambda: nn.Sequential(nn.Linear(64, 64), nn.Dropout(), nn.SiLU(), nn.Linear(64, 64)), (64,)),
    "softmax": (lambda: nn.Sequential(nn.Linear(32, 100), nn.Softmax(-1)), (32,)),
}  # fmt: skip


@pytest.mark.parametrize("name", NETWORKS)
def test_a_larger_batch_is_never_predicted_faster_beyond_the_interval(name: str, measured: Profile) -> None:
    build, shape = NETWORKS[name]
    model = build()
    for mode in ("train", "infer"):
        found = [(batch, priced(model, (batch, *shape), mode, measured)) for batch in BATCHES]
        for (small, a), (large, b) in combinations(found, 2):
            assert b.step_seconds >= a.low, f"{mode}: {large} rows in less than {small}"
