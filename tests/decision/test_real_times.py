"""Which plans are raced, and what real times change of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import nn

from placer.decision import measured as real_times
from placer.decision.comparison import PricedPart, Table
from placer.decision.measured import Seen, with_race, with_seen
from placer.pricing.prediction import Prediction
from placer.profile.profile import Profile
from placer.workload import Workload, make_workload

TableOf = Callable[..., Table]


@pytest.fixture
def table_of(handmade_profile: Profile) -> TableOf:
    def made(*predictions: Prediction, repeats: int | None = None) -> Table:
        found = {p.device: p for p in predictions}
        return Table((PricedPart("", 1, found, {}, key="key"),), found, handmade_profile, {}, repeats, notes=("known",))

    return made


@pytest.fixture
def workload() -> Workload:
    return make_workload(nn.Linear(4, 2), (3, 4))


@pytest.fixture
def raced(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """The devices of every race, in which the GPU is the faster one, and the threads that it ran with."""
    seen: list[tuple[str, ...]] = []

    def race(_: Workload, devices: tuple[str, ...]) -> dict[str, Seen]:
        seen.append((*devices, str(torch.get_num_threads())))
        return {name: Seen(1.0, 0.9, 1.1) if name == "cuda" else Seen(2.0, 1.9, 2.1) for name in devices}

    monkeypatch.setattr(real_times, "race", race)
    return seen


def test_only_what_could_turn_out_otherwise_is_raced(
    table_of: TableOf, make_prediction: Callable[..., Prediction], workload: Workload, raced: list[tuple[str, ...]]
) -> None:
    alone = table_of(make_prediction("cpu", 1.0))
    beside = table_of(make_prediction("cpu", 1.0), make_prediction("cuda", 1.2, fits=False))
    clear = table_of(make_prediction("cpu", 1.0), make_prediction("cuda", 3.0))
    for table, measure in ((alone, "always"), (beside, "always"), (clear, "unsure")):
        assert with_race(table, workload, measure) is table
    assert raced == []
    touching = make_prediction("cuda", 3.0, low=make_prediction("cpu", 1.0).high)
    assert with_race(table_of(make_prediction("cpu", 1.0), touching), workload, "unsure").measured
    assert with_race(clear, workload, "always").measured
    crowded = table_of(make_prediction("cpu", 1.0, fits=False), make_prediction("cuda", 9.0, fits=False))
    assert not with_race(crowded, workload, "always").measured  # there is no room for either
    assert [devices[:2] for devices in raced] == [("cpu", "cuda")] * 2


def test_a_race_decides_and_says_so(
    table_of: TableOf, make_prediction: Callable[..., Prediction], workload: Workload, raced: list[tuple[str, ...]]
) -> None:
    threads = torch.get_num_threads()
    table = table_of(make_prediction("cpu", 1.0), make_prediction("cuda", 1.1))
    after = with_race(table, workload, "unsure")
    assert (table.decide().device, after.decide().device, after.measured) == ("cpu", "cuda", True)
    assert after.decide().reason.endswith("(measured)")
    assert {name: p.step_seconds for name, p in after.costs.items()} == {"cpu": 2.0, "cuda": 1.0}
    assert "were measured on this machine" in after.parts[0].notes[0]
    assert raced[0][2] == "2"  # the threads that the CPU's prediction is for
    assert torch.get_num_threads() == threads


def test_a_model_that_was_compiled_in_place_is_not_raced(
    table_of: TableOf, make_prediction: Callable[..., Prediction], raced: list[tuple[str, ...]]
) -> None:
    model = nn.Linear(4, 2)
    model.compile(backend="eager")
    table = table_of(make_prediction("cpu", 1.0), make_prediction("cuda", 1.1))
    after = with_race(table, make_workload(model, (3, 4)), "always")
    assert (raced, after.measured) == ([], False)
    assert "would have to be compiled again" in after.notes[1]


def test_a_model_with_a_hook_of_the_users_is_not_raced(
    table_of: TableOf, make_prediction: Callable[..., Prediction], raced: list[tuple[str, ...]]
) -> None:
    model = nn.Linear(4, 2)
    model.register_forward_hook(lambda *_: None)
    table = table_of(make_prediction("cpu", 1.0), make_prediction("cuda", 1.1))
    after = with_race(table, make_workload(model, (3, 4)), "always")
    assert (raced, after.measured, after.costs) == ([], False, table.costs)
    assert "the real step was not timed: copies of the model would call" in after.notes[1]


@pytest.mark.parametrize(("error", "said"), [
    (torch.OutOfMemoryError("CUDA out of memory.\nSee the manual"), "OutOfMemoryError: CUDA out of memory."),
    (ValueError("no such key"), "ValueError: no such key"),
])  # fmt: skip
def test_whatever_ends_a_race_leaves_what_was_predicted(
    error: Exception, said: str, table_of: TableOf, make_prediction: Callable[..., Prediction], workload: Workload,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    def race(*_: object) -> None:
        raise error

    monkeypatch.setattr(real_times, "race", race)
    table = table_of(make_prediction("cpu", 1.0), make_prediction("cuda", 1.1))
    after = with_race(table, workload, "always")
    assert after.notes == ("known", f"the real step was not timed: {said}")
    assert (after.decide(), after.costs, after.measured) == (table.decide(), table.costs, False)


def test_what_was_seen_takes_the_place_of_what_was_predicted(
    table_of: TableOf, make_prediction: Callable[..., Prediction], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = {"cpu": Seen(3.0, 2.0, 4.0)}
    monkeypatch.setattr(real_times, "lookup", lambda key, _: seen if key == "key" else {})
    table = table_of(make_prediction("cpu", 1.0), make_prediction("cuda", 1.1), repeats=10)
    after = with_seen(table)
    assert (table.decide().device, after.decide().device, len(after.parts[0].notes)) == ("cpu", "cuda", 1)
    assert after.decide().reason.endswith("(seen in earlier runs on cpu)")
    assert after.costs["cpu"].total_seconds == 30.0
    measured = replace(table, measured=True)
    assert with_seen(measured) is measured
    seen.clear()
    assert with_seen(table) is table
