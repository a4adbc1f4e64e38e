"""The CPU side of the ablation, on two steps of a record that has its calibration's journal."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from placer import profile as profiles
from placer.calibration.ablation.cpu import JOURNAL, CpuMechanism, Profiles, Records, cpu_outcome, opened
from placer.calibration.ablation.cpu_mechanisms import CPU_MECHANISMS
from placer.calibration.fitting.refitting import own_points, recounted, refitted
from placer.calibration.validation.held_out import held_out_entries
from placer.pricing import CostModel, framework_seconds

RECORD = Path(__file__).parents[3] / "calibration" / "records" / "cpu-avx512-2-core-november"
STEPS = ("graph_3", "perceptron_1")


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Records:
    folder = tmp_path_factory.mktemp("records") / RECORD.name
    folder.mkdir()
    for name in ("profile.json", JOURNAL):
        shutil.copy(RECORD / name, folder)
    report = json.loads((RECORD / "held_out.json").read_text())
    report["cells"] = [cell for cell in report["cells"] if cell["network"] in STEPS]
    (folder / "held_out.json").write_text(json.dumps(report))
    return Records(folder.parent)


def named(text: str) -> CpuMechanism:
    (found,) = [mechanism for mechanism in CPU_MECHANISMS if mechanism.name == text]
    return found


def test_a_record_is_priced_as_it_was_measured(records: Records) -> None:
    (machine,) = records.machines
    assert machine.held_out
    assert [len(step.on_gpus) for step in machine.steps] == [3, 3]
    found = cpu_outcome([machine], {machine.name: machine.own_fits})
    assert found.wrong.shape == (6,)
    assert np.all(np.abs(found.errors) < 0.5)


def test_what_is_off_changes_prices_and_is_on_again_afterwards(records: Records) -> None:
    (machine,) = records.machines
    own = {machine.name: machine.own_fits}
    before = cpu_outcome([machine], own).errors
    with named("residual").off():
        assert np.all(np.abs(cpu_outcome([machine], own).errors - before) > 1e-3)
    assert np.array_equal(cpu_outcome([machine], own).errors, before)


def test_a_fit_made_anew_prices_as_before_where_nothing_is_off(records: Records) -> None:
    fit = records.machines[0].own_fits.fits[0]
    # What recording adds to a time of a microsecond is doubted here too: the scatter of views is smoothed.
    scatter = {"softmax": 0.02, "sorting": 0.02, "pooling": 0.02, "view": 0.2}
    points = {name: times for name, times in own_points(fit).items() if name in scatter}
    again = CostModel(refitted(fit, points))
    assert points.keys() == scatter.keys()
    for name, times in points.items():
        logs = np.log(np.array(again.price_works(times.works)[0]) / times.seconds)
        assert abs(np.median(logs)) < 0.01, name
        assert np.median(np.abs(logs)) < scatter[name], name


def test_other_counts_take_the_place_of_those_left_out(records: Records) -> None:
    machine = records.machines[0]
    fit = machine.own_fits.fits[0]
    assert machine.journal is not None
    with opened(machine.journal) as journal:
        steps = journal.of("cpu", fit.threads)
    found = recounted(fit, ["evicted_call"], steps)
    assert "evicted_call" not in found.framework
    ratios = [framework_seconds(s.counts, found.framework) / framework_seconds(s.counts, fit.framework) for s in steps]
    assert 0.9 < float(np.median(ratios)) < 1.1


def test_the_profile_of_a_mechanism_concerns_its_families_alone(records: Records) -> None:
    machine = records.machines[0]
    mechanism = named("floor: own amounts of pooling")
    made = Profiles(machine, {})
    made._points = [{"pooling": points["pooling"]} for points in made._points]  # type: ignore[misc]  # others take long
    before = made.with_all(mechanism).fits[0]
    with mechanism.off():
        after = made.without(mechanism).fits[0]
    assert after.families["softmax"] is before.families["softmax"]
    assert "compared" in before.families["pooling"].parameters
    assert "compared" not in after.families["pooling"].parameters


def test_every_mechanism_names_code_that_is_there() -> None:
    assert len({mechanism.name for mechanism in CPU_MECHANISMS}) == len(CPU_MECHANISMS)
    for mechanism in CPU_MECHANISMS:
        assert mechanism.lines >= 0
        with mechanism.off():
            pass


def test_held_out_networks_are_the_same_everywhere() -> None:
    once, again = held_out_entries(of_each=2, as_calibration=2), held_out_entries(of_each=2, as_calibration=2)
    assert [entry.name for entry in once] == [entry.name for entry in again]
    assert [entry.batches for entry in once] == [entry.batches for entry in again]
    assert len(profiles.shipped()) >= 3
