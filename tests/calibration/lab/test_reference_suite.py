"""The reference systems: what was tried, that it trains, and that the choice turns where it should."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import placer
from placer.calibration.lab.suite import entries
from placer.calibration.lab.suite.reference import ENTRIES, Case, Reference
from placer.explanation import Explanation
from placer.profile.profile import Profile


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
