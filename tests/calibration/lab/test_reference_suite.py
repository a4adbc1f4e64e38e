"""The reference systems: what was tried, that it trains, and that the choice turns where it should."""

from __future__ import annotations

import statistics
from dataclasses import replace

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import placer
from placer.calibration.lab.suite import datasets, entries
from placer.calibration.lab.suite.reference import ENTRIES, Case, Reference
from placer.explanation import Explanation
from placer.profile.profile import Profile

#: By entry: rows of data, batch size, steps, learning rate. As short as shows that the loss falls.
RUNS = {
    "lorenz_dopri5": (1, 1, 8, 0.01), "surface_whole_data": (200, 200, 60, 0.08),
    "surface_data_loader": (256, 32, 40, 0.08), "mnist_example_training": (64, 16, 12, 1.0),
    "conv1d_training": (256, 64, 40, 0.01), "tabnet_regressor_training": (256, 128, 20, 0.02),
    "gru_training": (64, 32, 15, 0.01), "scratch_cnn_by_index": (64, 8, 24, 0.05),
    "scratch_cnn_by_mask": (64, 8, 24, 0.05), "scratch_cnn_large": (16, 8, 8, 0.02),
}  # fmt: skip
#: Those that take seconds.
SLOW = ("tabnet_regressor_training", "lorenz_dopri5", "scratch_cnn_large")


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture
def launching(handmade_profile: Profile) -> Profile:
    """A machine made by hand whose host takes four times as long to issue an op to the GPU as the CPU to run one."""
    cpu, cuda = handmade_profile.fits
    return replace(handmade_profile, fits=(cpu, replace(cuda, framework={"host": 8e-6})))


def named(name: str) -> Reference:
    return next(entry for entry in ENTRIES if entry.name == name)


def explained(entry: Reference, case: Case, profile: Profile) -> Explanation:
    return placer.explain(
        entry.build(),
        batch=entry.example(case.batch),
        loss=entry.loss,
        optimizer=entry.optimizer,
        mode=entry.modes[0],
        data=entry.data or "host",
        steps=entry.steps(case),
        profile=profile,
    )


def test_the_suite_is_the_five_systems_and_says_what_was_tried_and_reported() -> None:
    assert entries("reference") == list(ENTRIES)
    assert list(dict.fromkeys(entry.system for entry in ENTRIES)) == [
        "neural ODE",
        "surface regression",
        "moving data",
        "one-dimensional data",
        "network from scratch",
    ]
    for entry in ENTRIES:
        assert entry.data in ("host", "device"), entry.name
        assert set(entry.batches) == {case.batch for case in entry.cases}, entry.name
        assert all(case.reported and (case.rows is None or case.rows >= case.batch) for case in entry.cases)
    conv1d = named("conv1d_training")
    assert (conv1d.steps_per_epoch(Case(512, 1000, "")), conv1d.steps(Case(512, 1000, ""))) == (2, 20)
    assert named("lorenz_dopri5").steps(Case(1, None, "")) is None


@pytest.mark.parametrize("name", ["surface", "features", "digits", "one_hot_digits"])
def test_a_data_set_is_the_same_every_time_and_its_targets_vary(name: str) -> None:
    make = getattr(datasets, name)
    first = make(200)
    state = torch.get_rng_state()
    assert all(torch.equal(a, b) for a, b in zip(first, make(200), strict=True))
    assert torch.equal(torch.get_rng_state(), state)
    assert first[1].float().std() > 0.1


@pytest.mark.usefixtures("calibrated")
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(entry.name, marks=pytest.mark.soak) if entry.name in SLOW else entry.name
        for entry in ENTRIES
        if "train" in entry.modes
    ],
)
def test_each_system_trains_on_the_device_that_was_chosen_and_its_loss_falls(name: str) -> None:
    entry = named(name)
    rows, batch, steps, rate = RUNS[name]
    model = entry.build()
    kind = {"adam": torch.optim.Adam, "sgd": torch.optim.SGD, "adadelta": torch.optim.Adadelta}[entry.optimizer]
    optimizer = kind(model.parameters(), lr=rate)
    data = entry.example(rows)
    placement = placer.choose(
        model,
        batch=entry.example(batch),
        loss=entry.loss,
        optimizer=optimizer,
        data=entry.data or "host",
        steps=steps,
    )
    assert placement.confidence is not None  # it was predicted, not placed by the default rule
    # A trajectory has its points first: there is one, and it is the whole batch.
    loader = [data] if rows == batch else DataLoader(TensorDataset(*data), batch)
    losses: list[float] = []
    while len(losses) < steps:
        for x, y in placement.batches(loader):
            optimizer.zero_grad()
            loss = model(x, y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    assert next(model.parameters()).device.type == placement.device.type
    third = max(steps // 4, 2)
    assert statistics.mean(losses[-third:]) < 0.95 * statistics.mean(losses[:third])


def test_a_surface_of_few_points_stays_on_the_cpu_and_one_of_many_does_not(launching: Profile) -> None:
    entry = named("surface_whole_data")
    chosen = {case.rows: explained(entry, case, launching).decision.device for case in entry.cases}
    assert chosen == {100: "cpu", 1000: "cpu", 40_000: "cuda"}


def test_copies_take_most_of_what_a_product_gains_on_the_gpu(launching: Profile) -> None:
    staying, copied = (named(f"square_product_{kind}") for kind in ("staying", "copied"))
    stays, moves = (explained(entry, entry.cases[0], launching).devices for entry in (staying, copied))
    assert stays["cuda"].components["copy"] == 0.0 < moves["cuda"].components["copy"]
    gain_staying, gain_moving = (rows["cpu"].step_seconds / rows["cuda"].step_seconds for rows in (stays, moves))
    assert gain_staying > 3.0 > gain_moving
    assert gain_moving < gain_staying / 3


def test_more_data_repays_the_gpus_one_time_cost(launching: Profile) -> None:
    entry = named("conv1d_training")
    few, *_, many = [case for case in entry.cases if case.batch == 4096]  # by rows, ascending
    for case, device in ((few, "cpu"), (many, "cuda")):
        decision = explained(entry, case, launching).decision
        assert decision.device == device
        assert ((entry.steps(case) or 0) >= (decision.break_even_steps or 0)) == (device == "cuda")
