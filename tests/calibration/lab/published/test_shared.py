"""Shared records as data of the fits: whatever lies in their folder is found."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from described import spec

from placer import profile
from placer.calibration.lab.published import fit, shared
from placer.calibration.validation import record, sharing
from placer.calibration.validation.record import Cell, Report
from placer.calibration.validation.run import profile_of_record
from placer.pricing import Context, CostModel, describe
from placer.tracing import OpCall

NAME, SLOWER = "intel-xeon-avx512-2-core", 1.5
#: A step that a GPU may have computed all the time, and one that its host issued.
STEP = Cell("mnist_convnet", "cnn", 64, "train", "cuda", 2, "adadelta", predicted=1.0, measured=1.0,
            repeatability=1.1)  # fmt: skip
HOST_BOUND = replace(STEP, batch=1, measured=1e-4)
#: One that took three times as long on the last visit: something else ran, too.
BUSY = replace(STEP, batch=16, measured=9.0, repeatability=3.0)
ON_CPU = replace(STEP, device="cpu", predicted=1.0, measured=SLOWER)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of records with one that somebody shared, of a machine with a T4 and a GPU that no catalog has."""
    known = profile.load(NAME)
    gpus = [{"device": "cuda", "name": "Tesla T4"}, {"device": "cuda:1", "name": "no such GPU"}]
    facts = {**known.fingerprint, "accelerators": gpus}
    elsewhere = replace(STEP, device="cuda:1"), replace(STEP, network="held_out_1")
    cells = (STEP, HOST_BOUND, BUSY, ON_CPU, replace(BUSY, device="cpu"), *elsewhere)
    report = Report("2026-11-29T10:00:00+00:00", facts, "", cells)
    sharing.share(report, replace(known, fingerprint=facts), tmp_path / "somebody.json", io.StringIO())
    (tmp_path / "cpu-2-core").mkdir()
    return tmp_path


def test_steps_on_gpus_are_samples_beside_the_published_ones(folder: Path) -> None:
    busy, issued = fit.shared_samples(shared.files(folder))
    assert (busy.source, busy.gpu, busy.seconds, busy.use) == ("shared:somebody", "Tesla T4", 1.0, "fit")
    assert busy.group == ("shared:somebody", "cnn", "train", "float32")
    assert {row.kind for row, _, _ in busy.rows} >= {"convolution", "product", "memory"}
    assert 0.0 < busy.offset < 1e-2
    assert issued.use == "host-bound"
    (busy, _) = fit.shared_samples(shared.files(folder), held_out={"Tesla T4"})
    assert busy.use == "held-out GPU"


def test_a_calibration_is_a_machine_at_the_pace_of_its_steps(folder: Path) -> None:
    users = shared.cpu_fits(shared.calibrations(shared.files(folder)))
    assert {name: slower for name, (_, slower) in users.items()} == {"somebody@2": SLOWER, "somebody@1": 1.0}
    (cpu, slower), core = users["somebody@2"], users["somebody@1"][0]
    products = [OpCall("aten::mm", (spec(n, 64), spec(64, n)), (spec(n, n),)) for n in (8, 64, 512)]
    unknown = OpCall("aten::mm", (spec(8, 8, dtype="complex64"),) * 2, (spec(8, 8, dtype="complex64"),))
    works = [describe(call, Context(0, False)) for call in (*products, unknown)]
    *told, nothing = shared.log_seconds(works, cpu, slower)
    priced, _, _ = CostModel(cpu).price_works(works[:-1])
    assert np.exp(told) == pytest.approx(SLOWER * np.array(priced), rel=1e-3)
    assert np.isnan(nothing)
    assert np.isnan(shared.log_seconds(works, replace(core, families={}), 1.0)).all()


def test_a_fit_to_new_networks_is_written_into_the_record(folder: Path) -> None:
    (path,) = shared.files(folder)
    before, (calibrated,) = json.loads(path.read_text()), shared.calibrations([path]).values()
    fits = {"somebody@2": replace(calibrated[1].fit("cpu", 2), edition=1)}
    shared.write_fits(path, fits)
    after = json.loads(path.read_text())
    assert [each["edition"] == 1 for each in after["calibration"]["fits"]] == [True, False]
    assert {name: after[name] for name in after if name != "calibration"} == {
        name: before[name] for name in before if name != "calibration"
    }
    assert profile_of_record(record.load(path), path).estimated
    assert shared.cpu_fits(shared.calibrations([path])) == {}
