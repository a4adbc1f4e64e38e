"""The reference systems: what was tried, that it trains, and that the choice turns where it should."""

from __future__ import annotations

import statistics
from dataclasses import replace

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import placer
from placer.calibration.suite import entries
from placer.calibration.suite.reference import ENTRIES, Case, Reference, datasets
from placer.explanation import Explanation
from placer.profile.profile import Profile
from placer.tracing import Trace, trace
from placer.workload import make_workload

#: By entry: rows of data, batch size, steps, learning rate. As short as shows that the loss falls.
RUNS = {
    "lorenz_dopri5": (1, 1, 8, 0.01), "surface_whole_data": (200, 200, 60, 0.08),
    "surface_data_loader": (256, 32, 40, 0.08), "mnist_example_training": (64, 16, 12, 1.0),
    "conv1d_training": (256, 64, 40, 0.01), "tabnet_regressor_training": (256, 128, 20, 0.02),
    "gru_training": (64, 32, 15, 0.01), "scratch_cnn_by_index": (64, 8, 24, 0.05),
    "scratch_cnn_by_mask": (64, 8, 24, 0.05), "scratch_cnn_large": (16, 8, 8, 0.02),
}  # fmt: skip


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
        entry.build(), batch=entry.example(case.batch), loss=entry.loss, optimizer=entry.optimizer,
        mode=entry.modes[0], data=entry.data or "host", steps=entry.steps(case), profile=profile,
    )  # fmt: skip


def traced(name: str, batch: int) -> Trace:
    entry = named(name)
    return trace(make_workload(
        entry.build(), batch=entry.example(batch), loss=entry.loss, mode=entry.modes[0], data=entry.data or "host"
    ))  # fmt: skip


def test_the_suite_is_the_five_systems_and_says_what_was_tried_and_reported() -> None:
    assert entries("reference") == list(ENTRIES)
    assert list(dict.fromkeys(entry.system for entry in ENTRIES)) == [
        "neural ODE", "surface regression", "moving data", "one-dimensional data", "network from scratch",
    ]  # fmt: skip
    assert len({(entry.system, entry.variant) for entry in ENTRIES}) == len(ENTRIES)
    for entry in ENTRIES:
        assert entry.data in ("host", "device"), entry.name
        assert set(entry.batches) == {case.batch for case in entry.cases}, entry.name
        assert all(case.reported and (case.rows is None or case.rows >= case.batch) for case in entry.cases)


def test_steps_go_through_the_data_as_often_as_the_account_did() -> None:
    conv1d = named("conv1d_training")
    assert (conv1d.steps_per_epoch(Case(512, 1000, "")), conv1d.steps(Case(512, 1000, ""))) == (2, 20)
    assert named("surface_whole_data").steps(Case(100, 100, "")) == 2000
    assert named("lorenz_dopri5").steps(Case(1, None, "")) is None


def test_only_the_copied_product_moves_anything_and_a_target_is_copied_too() -> None:
    staying, copied = (traced(f"square_product_{kind}", 200) for kind in ("staying", "copied"))
    assert [call.op for call in staying.calls] == [call.op for call in copied.calls] == ["aten::mm"]
    assert staying.outputs == ()
    assert [spec.shape for spec in copied.outputs] == [(200, 200)]
    supervised = traced("surface_data_loader", 32)
    assert [spec.shape for spec in supervised.batch] == [(32, 2), (32, 1)]
    assert [call for call in supervised.calls if call.phase == "loss"] == []


def test_tabnet_is_the_one_of_the_account() -> None:
    encoder = named("tabnet_regressor_training").build().get_submodule("model.tabnet.encoder")
    assert (encoder.n_d, encoder.n_a, encoder.n_steps, encoder.gamma) == (17, 17, 1, 1.5)
    assert (encoder.n_independent, encoder.n_shared) == (2, 2)


@pytest.mark.parametrize("name", ["surface", "features", "digits", "one_hot_digits"])
def test_a_data_set_is_the_same_every_time_and_its_targets_vary(name: str) -> None:
    make = getattr(datasets, name)
    first = make(200)
    torch.rand(3)
    state = torch.get_rng_state()
    assert all(torch.equal(a, b) for a, b in zip(first, make(200), strict=True))
    assert torch.equal(torch.get_rng_state(), state)
    assert first[1].float().std() > 0.1


def test_the_lorenz_trajectory_obeys_its_equations() -> None:
    start, path = datasets.lorenz(2, points=201)
    torch.testing.assert_close(path[0], start)
    slope = (path[2:] - path[:-2]) / 1e-2
    x, y, z = path[1:-1].unbind(-1)
    expected = torch.stack([10 * (y - x), x * (28 - z) - y, x * y - 8 / 3 * z], dim=-1)
    torch.testing.assert_close(slope, expected, rtol=0.02, atol=0.5)


@pytest.mark.usefixtures("calibrated")
@pytest.mark.parametrize("name", [
    pytest.param(entry.name, marks=pytest.mark.soak) if entry.name.startswith("tabnet") else entry.name
    for entry in ENTRIES if "train" in entry.modes
])  # fmt: skip
def test_each_system_trains_on_the_device_that_was_chosen_and_its_loss_falls(name: str) -> None:
    entry = named(name)
    rows, batch, steps, rate = RUNS[name]
    model = entry.build()
    kind = {"adam": torch.optim.Adam, "sgd": torch.optim.SGD, "adadelta": torch.optim.Adadelta}[entry.optimizer]
    optimizer = kind(model.parameters(), lr=rate)
    data = entry.example(rows)
    placement = placer.choose(
        model, batch=entry.example(batch), loss=entry.loss, optimizer=optimizer, data=entry.data or "host",
        steps=steps,
    )  # fmt: skip
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


def test_a_neural_ode_and_a_surface_from_small_batches_stay_on_the_cpu(launching: Profile) -> None:
    for name in ("lorenz_dopri5", "surface_data_loader"):
        entry = named(name)
        found = [explained(entry, case, launching).decision for case in entry.cases]
        assert {decision.device for decision in found} == {"cpu"}
        assert name != "lorenz_dopri5" or (found[0].speedup or 0.0) > 3.0


def test_a_surface_of_few_points_stays_on_the_cpu_and_one_of_many_does_not(launching: Profile) -> None:
    entry = named("surface_whole_data")
    chosen = {case.rows: explained(entry, case, launching).decision.device for case in entry.cases}
    assert chosen == {100: "cpu", 1000: "cpu", 40_000: "cuda"}


def test_copies_take_most_of_what_a_product_gains_on_the_gpu(launching: Profile) -> None:
    staying, copied = (named(f"square_product_{kind}") for kind in ("staying", "copied"))
    stays, moves = (explained(entry, entry.cases[0], launching).devices for entry in (staying, copied))
    assert stays["cuda"].components["copy"] == 0.0
    assert moves["cuda"].components["copy"] > 0.0
    gain_staying, gain_moving = (rows["cpu"].step_seconds / rows["cuda"].step_seconds for rows in (stays, moves))
    assert gain_staying > 3.0
    assert gain_moving < gain_staying / 3


def test_more_data_repays_the_gpus_one_time_cost(launching: Profile) -> None:
    entry = named("conv1d_training")
    cases = [case for case in entry.cases if case.batch == 4096]  # by rows, ascending
    found = [explained(entry, case, launching).decision for case in cases]
    assert [found[0].device, found[-1].device] == ["cpu", "cuda"]
    (repaid,) = {decision.break_even_steps for decision in found}  # a matter of the step alone
    assert [decision.device == "cuda" for decision in found] == [entry.steps(case) >= repaid for case in cases]  # type: ignore[operator]
