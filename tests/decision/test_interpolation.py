"""Interpolated predictions, compared with those of real traces of the very shapes."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import placer
from placer import decision as deciding
from placer import profile, tracing
from placer.decision import interpolation as between
from placer.decision import make_plan
from placer.decision.comparison import compare
from placer.decision.decision import decide
from placer.decision.interpolation import Sizes, growth, interpolate, nearest_around
from placer.decision.plan import Plan
from placer.pricing.prediction import Prediction
from placer.profile.profile import Profile
from placer.tracing.trace_data import Trace
from placer.workload import Workload, make_workload

RECORD = "calibration/records/cpu-2-core/profile.json"


pytestmark = pytest.mark.usefixtures("no_plans")


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(100, 32)
        self.layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
        self.head = nn.Linear(32, 4)

    def forward(self, ids: Tensor) -> Tensor:
        result: Tensor = self.head(self.layer(self.words(ids)))
        return result


class TimeSteps(nn.Module):
    """A loop over the length: other numbers of ops at every length, of the same kinds."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.Linear(24, 16)

    def forward(self, x: Tensor) -> Tensor:
        state = x.new_zeros(len(x), 16)
        for step in x.unbind(1):
            state = torch.tanh(self.cell(torch.cat((step, state), 1)))
        return state


class Chunks(nn.Module):
    """Other ops from a length of 100 on."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.inner(x if x.shape[1] < 100 else x.sigmoid())
        return result


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))


def images() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())


#: Network, its input at a size, and the sizes that are tried.
NETWORKS: dict[str, tuple[Callable[[], nn.Module], Callable[[int], Any], list[int]]] = {
    "rows of a perceptron": (perceptron, lambda n: torch.empty(n, 16), [1, 3, 10, 31, 310, 1000, 10_000]),
    "length of a transformer": (
        Encoder, lambda n: torch.zeros(4, n, dtype=torch.long), [8, 12, 16, 23, 32, 45],
    ),
    "both of a transformer": (
        Encoder, lambda n: torch.zeros(n, 4 * n, dtype=torch.long), [7, 8, 9, 10, 11],
    ),
    "length of an LSTM": (lambda: nn.LSTM(8, 16), lambda n: torch.empty(n, 4, 8), [16, 20, 25, 31, 39]),
    "size of an image": (images, lambda n: torch.empty(2, 3, n, n), [16, 20, 24, 29, 36, 45]),
    "length of a loop": (TimeSteps, lambda n: torch.empty(4, n, 8), [9, 10, 11, 12, 13, 14]),
}  # fmt: skip


def shapes(example: Tensor) -> Sizes:
    return (tuple(example.shape),)


@pytest.fixture(scope="module")
def record() -> Profile:
    """A profile with fitted residuals: prices that are not smooth. Its intervals are wide enough to be widened."""
    found = placer.load_profile(RECORD)
    wide = {"base": 0.3, "ops": 1.0}
    return dataclasses.replace(found, fits=tuple(dataclasses.replace(fit, interval=wide) for fit in found.fits))


@pytest.mark.parametrize("mode", ["train", "infer"])
@pytest.mark.parametrize("name", NETWORKS)
def test_what_is_interpolated_is_what_a_trace_gives_well_within_the_interval(
    name: str, mode: str, record: Profile
) -> None:
    build, example, sizes = NETWORKS[name]
    model, comparison = build(), compare(record, devices=None, here=False)
    plans = {n: make_plan(make_workload(model, example=example(n), mode=mode), comparison) for n in sizes}
    tried = 0
    for low, middle, high in itertools.combinations(sizes, 3):
        small, here, large = (shapes(example(n)) for n in (low, middle, high))
        up, down = growth(small, here), growth(here, large)
        assert up is not None
        assert down is not None
        found = interpolate(plans[low], plans[high], up, down, 100)
        if found is None:
            continue
        tried += 1
        guess, real = found["cpu"], plans[middle].predictions["cpu"]
        assert guess.low < real.step_seconds < guess.high
        half = math.log(guess.high / guess.step_seconds)
        assert abs(math.log(guess.step_seconds / real.step_seconds)) < 0.5 * half
        assert half > math.log(real.high / real.step_seconds) - 0.02
        assert guess.peak_memory_bytes >= real.peak_memory_bytes
        assert guess.coverage <= max(real.coverage, plans[high].predictions["cpu"].coverage)
        assert sum(guess.components.values()) == pytest.approx(guess.step_seconds)
        assert sum(guess.priced.seconds) == pytest.approx(guess.components["compute"])
        assert guess.total_seconds == pytest.approx(100 * guess.step_seconds)
        assert guess.interpolated
    assert tried >= 3


def test_a_length_at_which_other_ops_run_is_traced(record: Profile) -> None:
    model, comparison = Chunks(), compare(record, devices=None, here=False)
    short, longer, other = (
        make_plan(make_workload(model, example=torch.empty(2, n, 8)), comparison) for n in (90, 95, 105)
    )
    assert interpolate(short, longer, 0.01, 0.01, None) is not None
    assert interpolate(short, other, 0.01, 0.01, None) is None


@pytest.fixture
def calibrated(handmade_profile: Profile) -> Profile:
    """The hand-made profile in this machine's place, with the intervals that a calibration ends with."""
    fits = tuple(dataclasses.replace(fit, interval={"base": 0.15}) for fit in handmade_profile.fits)
    profile.save(dataclasses.replace(handmade_profile, fits=fits))
    return placer.load_profile()


@pytest.fixture
def plan(make_prediction: Callable[..., Prediction], handmade_profile: Profile) -> Callable[..., Plan]:
    def make(seconds: float, **values: Any) -> Plan:
        found = {"cpu": make_prediction("cpu", seconds, **values)}
        return Plan(decide(found, None), found, {"inputs": []}, handmade_profile, kinds=1)

    return make


def test_what_cannot_be_is_traced(plan: Callable[..., Plan]) -> None:
    """More data in less time, or in more than the square allows; or in so much more that nothing is known between."""
    assert interpolate(plan(1e-3), plan(1.01e-3), 0.3, 0.3, None) is not None
    assert interpolate(plan(1e-3), plan(0.9e-3), 0.3, 0.3, None) is None
    assert interpolate(plan(1e-3), plan(1.3e-3), 0.05, 0.05, None) is None
    assert interpolate(plan(1e-3), plan(4e-3), 1.0, 1.0, None) is None


def test_the_interval_covers_what_the_bounds_leave_open(plan: Callable[..., Plan]) -> None:
    gained = math.log(1.1)
    found = interpolate(plan(1e-3, low=0.5e-3, high=2e-3), plan(1.1e-3, low=0.55e-3, high=2.2e-3), 0.2, 0.2, None)
    assert found is not None
    middle = found["cpu"]
    assert middle.step_seconds == pytest.approx(1e-3 * math.exp(gained / 2))
    # All of the time may be gained at once, before this size or after it; and prices are a little uneven.
    assert middle.high == pytest.approx(2.2e-3 * math.exp(between.UNEVEN))
    assert middle.low == pytest.approx(0.5e-3 * math.exp(-between.UNEVEN))


def test_memory_is_that_of_the_larger_step_and_what_fits_nowhere_does_not_fit(plan: Callable[..., Plan]) -> None:
    found = interpolate(
        plan(1e-3, peak_memory_bytes=10), plan(1e-3, peak_memory_bytes=30, fits=False), 0.3, 0.01, None
    )  # fmt: skip
    assert found is not None
    assert found["cpu"].peak_memory_bytes == 30
    assert not found["cpu"].fits


def test_neighbours_are_nowhere_larger_and_nowhere_smaller() -> None:
    known: dict[Sizes, str] = {((2, 10),): "a", ((4, 10),): "b", ((8, 20),): "c", ((3, 40),): "d"}
    assert nearest_around(known, ((5, 10),)) == ("b", "c", math.log(5 / 4), math.log(16 / 5))
    assert nearest_around(known, ((3, 20),)) == ("a", "d", math.log(3), math.log(2))
    assert nearest_around(known, ((9, 20),)) is None  # larger than all
    assert nearest_around(known, ((1, 10),)) is None


def test_the_tensor_that_grows_most_counts_and_nothing_grows_from_zero() -> None:
    assert growth(((2, 3), (5,)), ((4, 3), (20,))) == math.log(4)
    assert growth(((), (5,)), ((), (5,))) == 0.0
    assert growth(((0, 3),), ((4, 3),)) is None
    assert growth(((4, 3),), ((2, 9),)) is None


# In choose.


def counted(monkeypatch: pytest.MonkeyPatch) -> list[Workload]:
    """Grows by one with every trace."""
    traced: list[Workload] = []
    trace = tracing.trace

    def seen(workload: Workload) -> Trace:
        traced.append(workload)
        return trace(workload)

    monkeypatch.setattr(tracing, "trace", seen)
    return traced


def test_lengths_between_traced_ones_are_interpolated_and_say_so(
    calibrated: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, traced = perceptron(), counted(monkeypatch)
    for rows in (100, 150):
        placer.choose(model, (rows, 16), devices="cpu")
    found = placer.choose(model, (120, 16), devices="cpu")
    assert len(traced) == 2
    assert found.reason.endswith("(interpolated between other shapes)")
    assert found.predictions["cpu"].interpolated
    explanation = found.explain()
    assert explanation.workload["inputs"] == ["120×16 float32"]
    assert sum(sum(row.devices.values()) for row in explanation.layers) == pytest.approx(
        found.predictions["cpu"].components["compute"]
    )
    (note,) = (n for n in explanation.notes if "interpolated" in n)
    assert "100×16 float32 and 150×16 float32, which were traced" in note
    assert placer.choose(model, (120, 16), devices="cpu").decision is found.decision
    for rows in (99, 151, 5000):
        assert not placer.choose(model, (rows, 16), devices="cpu").predictions["cpu"].interpolated
    assert len(traced) == 5


@pytest.mark.parametrize("change", [
    {"mode": "infer"}, {"optimizer": "sgd"}, {"steps": 10}, {"data": "device"}, {"autocast": True},
    {"threads": "tune"}, {"measure": "always"},
])  # fmt: skip
def test_another_question_is_traced(change: dict[str, Any], calibrated: Profile) -> None:
    model = perceptron()
    for rows in (100, 150):
        placer.choose(model, (rows, 16), devices="cpu")
    assert not placer.choose(model, (120, 16), devices="cpu", **change).predictions["cpu"].interpolated


def test_a_changed_model_is_traced(calibrated: Profile) -> None:
    model = perceptron()
    for rows in (100, 150):
        placer.choose(model, (rows, 16), devices="cpu")
    model[0].bias = None  # type: ignore[index]
    assert not placer.choose(model, (120, 16), devices="cpu").predictions["cpu"].interpolated


def test_shapes_captured_by_the_loss_vary_along(calibrated: Profile) -> None:
    model = perceptron()

    def asked(rows: int) -> placer.Placement:
        target = torch.zeros(rows, 1)
        return placer.choose(
            model, (rows, 16), devices="cpu", loss=lambda out: nn.functional.mse_loss(out, target)
        )  # fmt: skip

    asked(100), asked(150)
    assert asked(120).predictions["cpu"].interpolated


def test_an_epoch_of_evaluation_between_forgets_nothing(calibrated: Profile) -> None:
    model = perceptron()
    for rows in (100, 150):
        placer.choose(model, (rows, 16), devices="cpu")
    model.eval()
    placer.choose(model, (120, 16), devices="cpu")
    model.train()
    assert placer.choose(model, (130, 16), devices="cpu").predictions["cpu"].interpolated


def test_memory_stays_bounded_and_few_shapes_are_traced(calibrated: Profile, monkeypatch: pytest.MonkeyPatch) -> None:
    model, traced = perceptron(), counted(monkeypatch)
    for rows in torch.randperm(1000)[:400].tolist():
        placer.choose(model, (1 + rows, 16), devices="cpu")
    assert len(traced) < 60
    assert len(deciding.plans._by_signature) <= 64
    assert sum(map(len, deciding.plans._by_sizes.values())) == len(deciding.plans._by_signature)
    assert len(deciding.plans._by_model[model].plans) <= 32
    assert len(deciding.plans._by_model[model].meanings) <= 32
