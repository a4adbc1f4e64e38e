"""The choice for each system turns where it should, on a machine made by hand whose GPU is slow to launch."""

from __future__ import annotations

import pytest

import placer
from placer.calibration.suite.reference import ENTRIES, Case, Reference
from placer.cli.options import Range
from placer.cli.sweep import run
from placer.explanation import Explanation
from placer.profile.profile import Profile


def named(name: str) -> Reference:
    return next(entry for entry in ENTRIES if entry.name == name)


def explained(entry: Reference, case: Case, profile: Profile) -> Explanation:
    return placer.explain(
        entry.build(), example=entry.example(case.batch), loss=entry.loss, optimizer=entry.optimizer,
        mode=entry.modes[0], data=entry.data or "host", steps=entry.steps(case), profile=profile,
    )  # fmt: skip


def test_a_neural_ode_stays_on_the_cpu(launching: Profile) -> None:
    entry = named("lorenz_dopri5")
    found = explained(entry, entry.cases[0], launching)
    assert found.decision.device == "cpu"
    assert (found.decision.speedup or 0.0) > 3.0


def test_a_surface_of_few_points_stays_on_the_cpu_and_one_of_many_does_not(launching: Profile) -> None:
    entry = named("surface_whole_data")
    chosen = {case.rows: explained(entry, case, launching).decision.device for case in entry.cases}
    assert chosen == {100: "cpu", 1000: "cpu", 40_000: "cuda"}


def test_a_surface_from_small_batches_stays_on_the_cpu(launching: Profile) -> None:
    entry = named("surface_data_loader")
    found = [explained(entry, case, launching) for case in entry.cases]
    assert {explanation.decision.device for explanation in found} == {"cpu"}
    assert all(explanation.devices["cuda"].components["copy"] > 0.0 for explanation in found)


def test_copies_take_most_of_what_a_product_gains_on_the_gpu(launching: Profile) -> None:
    staying, copied = (named(f"square_product_{kind}") for kind in ("staying", "copied"))
    stays, moves = (explained(entry, entry.cases[0], launching) for entry in (staying, copied))
    assert stays.devices["cuda"].components["copy"] == 0.0
    assert moves.devices["cuda"].components["copy"] > 0.0
    gain_staying, gain_moving = (
        found.devices["cpu"].step_seconds / found.devices["cuda"].step_seconds for found in (stays, moves)
    )
    assert gain_staying > 3.0
    assert gain_moving < gain_staying / 3


def test_more_data_repays_the_gpus_one_time_cost(launching: Profile) -> None:
    entry = named("conv1d_training")
    cases = [case for case in entry.cases if case.batch == 4096]  # by rows, ascending
    found = [explained(entry, case, launching) for case in cases]
    assert [found[0].decision.device, found[-1].decision.device] == ["cpu", "cuda"]
    (repaid,) = {explanation.decision.break_even_steps for explanation in found}  # a matter of the step alone
    for case, explanation in zip(cases, found, strict=True):
        steps = entry.steps(case)
        assert steps is not None
        assert repaid is not None
        assert (explanation.decision.device == "cuda") == (steps >= repaid)


@pytest.mark.parametrize(
    ("name", "shapes"),
    [("surface_whole_data", ((2,), (1,))), ("conv1d_training", ((84,), (1,)))],
)
def test_a_sweep_finds_the_batch_from_which_the_gpu_pays(
    name: str, shapes: tuple[tuple[int, ...], ...], launching: Profile
) -> None:
    entry = named(name)
    model = entry.build()

    def at(size: int | None) -> Explanation:
        batch = [(size or 1, *shape) for shape in shapes]
        return placer.explain(model, batch, profile=launching, data=entry.data or "host", mode="train")

    table = run(Range("batch", (1, 64, 4096, 65_536)), at)
    turns = table.crossovers()
    assert [device for _, device in turns] == ["cpu", "cuda"]
    times = {
        size: {name: row.devices[name].step_seconds for name in ("cpu", "cuda")} for size, row in table.rows.items()
    }
    assert all((times[size]["cuda"] < times[size]["cpu"]) == (size >= turns[1][0]) for size in times)
