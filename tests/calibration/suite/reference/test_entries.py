from __future__ import annotations

import pytest

from placer.calibration.suite import entries
from placer.calibration.suite.reference import ENTRIES, Case, Reference
from placer.nest import tensors
from placer.tracing import trace
from placer.workload import make_workload


def named(name: str) -> Reference:
    return next(entry for entry in ENTRIES if entry.name == name)


def test_the_reference_suite_is_the_five_systems() -> None:
    assert entries("reference") == list(ENTRIES)
    assert list(dict.fromkeys(entry.system for entry in ENTRIES)) == [
        "neural ODE", "surface regression", "moving data", "one-dimensional data", "network from scratch",
    ]  # fmt: skip
    variants = [(entry.system, entry.variant) for entry in ENTRIES]
    assert len(set(variants)) == len(variants)


def test_every_entry_says_what_was_tried_where_its_data_lives_and_what_was_reported() -> None:
    for entry in ENTRIES:
        assert entry.variant, entry.name
        assert entry.data in ("host", "device"), entry.name
        assert entry.cases, entry.name
        assert set(entry.batches) == {case.batch for case in entry.cases}, entry.name
        for case in entry.cases:
            assert case.reported, entry.name
            assert case.rows is None or case.rows >= case.batch, entry.name


def test_steps_go_through_the_data_as_often_as_the_account_did() -> None:
    conv1d = named("conv1d_training")
    assert conv1d.steps(Case(512, 1000, "")) == 10 * 2
    assert conv1d.steps_per_epoch(Case(512, 1000, "")) == 2
    assert named("surface_whole_data").steps(Case(100, 100, "")) == 2000
    assert named("lorenz_dopri5").steps(Case(1, None, "")) is None
    assert named("lorenz_dopri5").steps_per_epoch(Case(1, None, "")) == 1


@pytest.mark.parametrize("name", ["square_product_staying", "square_product_copied"])
def test_only_the_copied_product_moves_anything(name: str) -> None:
    entry = named(name)
    workload = make_workload(entry.build(), example=entry.example(200), mode="infer", data=entry.data or "host")
    found = trace(workload)
    assert [call.op for call in found.calls] == ["aten::mm"]
    copied = name == "square_product_copied"
    assert entry.data == ("host" if copied else "device")
    assert sum(spec.stored_bytes for spec in found.outputs) == (200 * 200 * 4 if copied else 0)


def test_the_target_is_part_of_what_is_copied() -> None:
    entry = named("surface_data_loader")
    found = trace(make_workload(entry.build(), example=entry.example(32), loss=entry.loss))
    assert [spec.shape for spec in found.batch] == [(32, 2), (32, 1)]


def test_the_loss_of_a_supervised_step_adds_no_op() -> None:
    entry = named("surface_whole_data")
    found = trace(make_workload(entry.build(), example=entry.example(10), loss=entry.loss))
    assert [call for call in found.calls if call.phase == "loss"] == []
    assert next(tensors(entry.build()(*entry.example(10)))).shape == ()


def test_tabnet_is_the_one_of_the_account() -> None:
    encoder = named("tabnet_regressor_training").build().get_submodule("model.tabnet.encoder")
    assert (encoder.n_d, encoder.n_a, encoder.n_steps, encoder.gamma) == (17, 17, 1, 1.5)
    assert (encoder.n_independent, encoder.n_shared) == (2, 2)
