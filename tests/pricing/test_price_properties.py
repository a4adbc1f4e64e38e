"""What holds of every price, whatever the network and its shapes."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from random import Random
from typing import Literal

import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from placer import profile as profiles
from placer.calibration.benchmarks.kinds import solver
from placer.calibration.benchmarks.networks import KINDS
from placer.errors import ProfileError
from placer.pricing.predict import predict
from placer.pricing.prediction import Prediction
from placer.profile.profile import Device, Profile
from placer.tracing import trace_here
from placer.tracing.trace_data import Trace
from placer.workload import make_workload

RECORD = Path(__file__).resolve().parents[2] / "calibration" / "records" / "cpu-2-core" / "profile.json.xz"


def real_profiles(shipped: Sequence[str] = ()) -> dict[str, Profile]:
    """Profiles of real machines: the committed record's, and those that come with placer, or these of them."""
    return {"record": profiles.load(RECORD)} | {name: profiles.load(name) for name in shipped or profiles.shipped()}


@pytest.fixture(scope="module")
def measured_profiles() -> dict[str, Profile]:
    return real_profiles(("amd-epyc-2-core",))  # `make soak` has them all


@pytest.fixture
def measured(measured_profiles: dict[str, Profile]) -> Profile:
    return measured_profiles["record"]


@pytest.fixture
def every_profile(measured_profiles: dict[str, Profile], handmade_profile: Profile) -> dict[str, Profile]:
    """Those, and one with an accelerator."""
    return {**measured_profiles, "made by hand": handmade_profile}


def random_network(random: Random) -> tuple[nn.Module, Tensor]:
    """A network of any kind that a calibration draws, and a batch; neither has values, which solvers read."""
    kinds = [kind for kind in KINDS if kind is not solver]
    with torch.device("meta"):
        layers, x = random.choice(kinds)(random)
    model = nn.Sequential(*layers)
    if len(x) == 1 and any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in model.modules()):
        x = torch.cat([x, x])  # one position of one image has no variance to normalize by
    return model, x


def traced(model: nn.Module, shape: tuple[int, ...], mode: str) -> Trace:
    return trace_here(make_workload(model, batch=torch.empty(shape, device="meta"), mode=mode))


def everywhere(step: Trace, every: Mapping[str, Profile]) -> dict[str, Prediction]:
    """The step's prediction on every device of every profile."""
    return {
        f"{device} of {name}": found
        for name, profile in every.items()
        for device, found in predict(step, profile, devices=profile.devices(), threads=2).items()
    }


def priced(model: nn.Module, shape: tuple[int, ...], mode: str, profile: Profile) -> Prediction:
    return predict(traced(model, shape, mode), profile, devices=("cpu",), threads=2)["cpu"]


def check(found: Prediction) -> None:
    assert 0.0 < found.low <= found.step_seconds <= found.high < math.inf
    assert all(0.0 <= seconds < math.inf for seconds in found.priced.seconds)
    assert sum(found.components.values()) == pytest.approx(found.step_seconds)
    assert found.peak_memory_bytes >= 0
    assert 0.0 <= found.coverage <= 1.0


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32), mode=st.sampled_from(["train", "infer"]))
@example(seed=65536, mode="train")  # one image, halved until its side is 2
def test_random_networks_are_traced_and_priced(seed: int, mode: Literal["train", "infer"], measured: Profile) -> None:
    model, x = random_network(Random(seed))
    trains = any(p.requires_grad for p in model.parameters())
    step = trace_here(make_workload(model, batch=x, mode=mode if trains else "infer"))
    check(predict(step, measured, devices=("cpu",), threads=2)["cpu"])


# --- shapes that hold nothing -------------------------------------------------------------------------------------


class Apply(nn.Module):
    """A function with a parameter, so that it can be trained."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function
        self.weight = nn.Parameter(torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x) * self.weight


#: Layers, and batches without rows.
EMPTY: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "linear": (lambda: nn.Linear(8, 3), (0, 8)),
    "convolution": (lambda: nn.Conv2d(3, 4, 3), (0, 3, 8, 8)),
    "batch norm": (lambda: nn.BatchNorm2d(4).eval(), (0, 4, 8, 8)),
    "lstm": (lambda: nn.LSTM(6, 4, 2, batch_first=True), (0, 5, 6)),
    "cell": (lambda: nn.GRUCell(6, 4), (0, 6)),
    "encoder": (lambda: nn.TransformerEncoderLayer(8, 2, 8, batch_first=True), (0, 3, 8)),
    "inverse": (lambda: Apply(torch.linalg.inv), (0, 4, 4)),
}


@pytest.mark.parametrize("name", EMPTY)
def test_empty_inputs_have_a_price_above_zero(name: str, every_profile: dict[str, Profile]) -> None:
    build, shape = EMPTY[name]
    for mode in ("train", "infer"):
        for found in everywhere(traced(build(), shape, mode), every_profile).values():
            check(found)


#: Functions of a tensor of any shape whatever.
ANY_SHAPE: dict[str, Callable[[Tensor], Tensor]] = {
    "elementwise": lambda x: (x.exp() * 2 + 1).clamp(-1, 1),
    "sum": lambda x: x.sum(),
    "mean of the last": lambda x: x.mean(-1),
    "softmax": lambda x: x.softmax(-1),
    "scan": lambda x: x.cumsum(-1),
    "sort": lambda x: x.sort(-1)[0],
    "product": lambda x: x.reshape(-1, 1) @ x.new_ones(1, 3),
    "layer norm": lambda x: nn.functional.layer_norm(x[..., None], (1,)),
    "concatenation": lambda x: torch.cat([x.flatten(), x.flatten()]),
    "index": lambda x: x.flatten()[:3] + x.flatten()[-3:],
    "choice": lambda x: torch.where(x > 0, x, 0.1 * x),
    "dropout": lambda x: nn.functional.dropout(x, 0.5, training=True),
    "nothing": lambda x: x,
}


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    name=st.sampled_from(sorted(ANY_SHAPE)),
    shape=st.lists(st.sampled_from((0, 1, 2, 3, 7, 64, 257, 4096)), max_size=4).map(tuple),
    mode=st.sampled_from(["train", "infer"]),
)
def test_any_shape_has_a_price_above_zero(
    name: str, shape: tuple[int, ...], mode: str, every_profile: dict[str, Profile]
) -> None:
    for found in everywhere(traced(Apply(ANY_SHAPE[name]), shape, mode), every_profile).values():
        check(found)


@pytest.mark.parametrize("data", ["host", "pinned", "device"])
def test_a_step_without_ops_takes_time_on_every_device(data: str, handmade_profile: Profile) -> None:
    empty = Trace((), "infer", (), (), (), ())
    for found in predict(empty, handmade_profile, devices=("cpu", "cuda"), data=data).values():
        check(found)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_whatever_numbers_a_profile_holds_a_price_is_a_number_or_a_profile_error(
    data: st.DataObject, handmade_profile: Profile
) -> None:
    positive = st.floats(0.0, 1e300)
    fit = handmade_profile.fit("cpu")
    strange = Device(
        "cpu",
        fit.threads,
        {name: data.draw(positive, name) for name in fit.rates},
        {},
        {name: data.draw(positive, name) for name in ("step", "forward_op", "python_call")},
        {name: data.draw(positive, name) for name in ("base", "ops")},
    )
    profile = replace(handmade_profile, fits=(strange,))
    with contextlib.suppress(ProfileError):
        check(priced(nn.Linear(4, 4), (8, 4), "infer", profile))


# --- larger batches -----------------------------------------------------------------------------------------------

BATCHES = tuple(16**n for n in range(5))  # 1 to 65,536; `make soak` has every power of two
NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "regression": (
        lambda: nn.Sequential(nn.Linear(2, 20), nn.ReLU(), nn.Linear(20, 5), nn.ReLU(), nn.Linear(5, 1)),
        (2,),
    ),
    "wide": (lambda: nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.LayerNorm(1024), nn.Linear(1024, 10)), (256,)),
    "conv2d": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(8, 10),
        ),
        (3, 16, 16),
    ),
    "lstm": (lambda: nn.LSTM(8, 32, batch_first=True), (20, 8)),
    "encoder": (lambda: nn.TransformerEncoderLayer(32, 4, 64, batch_first=True), (16, 32)),
}


def faster(smaller: Prediction, larger: Prediction) -> bool:
    """Whether more rows are promised in less time, and not for want of knowing better."""
    return larger.step_seconds < smaller.low or larger.high < smaller.step_seconds


def pairs_of_batches(name: str, batches: Sequence[int], every: Mapping[str, Profile]) -> tuple[int, list[str]]:
    """How many pairs of batches of a network were compared, and those of which the larger is ``faster``."""
    build, shape = NETWORKS[name]
    model = build()
    pairs, wrong = 0, []
    for mode in ("train", "infer"):
        found = {batch: everywhere(traced(model, (batch, *shape), mode), every) for batch in batches}
        for small, large in combinations(batches, 2):
            for place in found[small]:
                pairs += 1
                if faster(found[small][place], found[large][place]):
                    wrong.append(f"{mode} on {place}: {large} rows in less time than {small}")
    return pairs, wrong


@pytest.mark.parametrize("name", NETWORKS)
def test_a_larger_batch_is_never_predicted_faster_beyond_the_interval(
    name: str, every_profile: dict[str, Profile]
) -> None:
    pairs, wrong = pairs_of_batches(name, BATCHES, every_profile)
    assert wrong == []
    devices = sum(len(profile.devices()) for profile in every_profile.values())
    assert pairs == 2 * 10 * devices  # modes, pairs of five batches
