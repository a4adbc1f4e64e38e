"""``placer validate`` of a checkout: records replayed by whatever predicts them, and what it refuses."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from made_up_cells import profile

from placer import machine
from placer.calibration.lab.validators import suites
from placer.calibration.lab.validators.suites import validate_suites
from placer.calibration.suite import Entry
from placer.calibration.validation import record
from placer.calibration.validation.record import Cell, Report
from placer.errors import CalibrationError, ProfileError, UnknownGPU

RECORDS = Path(__file__).parents[3] / "calibration" / "records"
FOLDER = RECORDS / "cpu-intel-avx512-2-core"
#: A record with an accelerator, and what its profile is fitted to.
ON_GPU, JOURNAL = RECORDS / "nvidia-h200-16-core-second", "calibration.journal.xz"


def test_main_replays_a_record(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, copy = tmp_path / "record.json", tmp_path / "copy.json"
    cell = Cell("mlp_tiny_sgd", "mlp", 1, "infer", "cpu", 1, measured=1e-4)
    record.save(Report("2026-01-01", {}, "other", (cell, replace(cell, network="lstm"))), path)
    assert validate_suites(against=path, profile=profile(), output=copy) == 0
    assert "hand-made of 2026-01-01" in capsys.readouterr().out
    saved = record.load(copy)
    assert [c.measured for c in saved.cells] == [1e-4, 1e-4]
    assert all(c.predicted for c in saved.cells)
    # A suite picks its networks only; none of the cells left can be predicted on this device.
    assert validate_suites("quick", against=path, profile=profile(device="cuda"), output=copy) == 1
    assert [c.network for c in record.load(copy).cells] == ["lstm"]


def test_a_run_that_continues_a_record_predicts_networks_of_other_suites_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "record.json"
    cell = Cell("mlp_tiny_sgd", "mlp", 1, "infer", "cpu", 1, predicted=1.0, measured=1e-4)
    record.save(Report("2026-01-01", machine.fingerprint(), "an earlier profile", (cell,)), path)
    everything = suites.entries("full")

    def nothing_of_quick(suite: str) -> list[Entry]:
        return [] if suite == "quick" else everything

    monkeypatch.setattr(suites, "entries", nothing_of_quick)
    assert suites.validate_suites("quick", profile=profile(), output=path) == 0
    (again,) = record.load(path).cells
    assert again.measured == cell.measured
    assert 0.0 < (again.predicted or 0.0) < 1.0


def test_main_refuses_what_it_cannot_do(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="unknown suite 'fast'"):
        validate_suites("fast", profile=profile())
    with pytest.raises(CalibrationError, match="run: placer calibrate"):
        validate_suites("quick", profile=profile(device="xpu"))
    with pytest.raises(CalibrationError, match="cannot read the record"):
        validate_suites(against=tmp_path / "none.json", profile=profile())
    with pytest.raises(ProfileError):
        validate_suites("quick")
    with pytest.raises(UnknownGPU, match="'K9000'"):
        validate_suites("reference", profile=profile(), what_if=["K9000"])


def test_main_prices_a_record_with_the_profile_it_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PLACER_HOME", str(tmp_path / "empty"))
    past = record.load(FOLDER / "reference.json")
    cells = tuple(cell for cell in past.cells if cell.network == "square_product_staying")
    named, alone = tmp_path / "named.json", tmp_path / "alone" / "record.json"
    alone.parent.mkdir()
    packed = "reference_profile.json.xz"
    (tmp_path / packed).write_bytes((FOLDER / packed).read_bytes())
    shown = []
    for path in (named, alone):
        record.save(replace(past, cells=cells), path)
        assert validate_suites(against=path, what_if=["K40"]) == 0
        shown.append(capsys.readouterr().out)
    assert past.profile in shown[0]
    assert "intel-xeon-avx512-2-core" in shown[1]  # without it: the shipped one of the nearest class
    assert all("on a Tesla K40m beside it" in text and "1 of 1 decided as reported" in text for text in shown)


def test_a_record_is_predicted_from_what_the_catalog_knows_of_its_gpu(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    past = record.load(ON_GPU / "measurements.json")
    kept = tuple(cell for cell in past.cells if cell.network in ("square_product_staying", "surface_whole_data"))
    record.save(replace(past, cells=kept), tmp_path / "measurements.json")
    (tmp_path / JOURNAL).write_bytes((ON_GPU / JOURNAL).read_bytes())
    shown = []
    for source in (None, "NVIDIA H200"):
        assert (
            validate_suites("reference", against=tmp_path, profile=source) == 0
        )  # a record is named by its folder, too
        shown.append(capsys.readouterr().out)
    assert shown[0].startswith("profile: fit of calibration.journal of ")
    errors = [re.findall(r"^(cuda|cpu) +(\d+) +([\d.]+) %", text, re.MULTILINE)[:2] for text in shown]
    # The same steps; the CPU is priced by the journal beside the record both times, the GPU is not.
    assert [[line[:2] for line in found] for found in errors] == [[("cuda", "4"), ("cpu", "4")]] * 2
    cuda, cpu = ([found[k][2] for found in errors] for k in (0, 1))
    assert cpu[0] == cpu[1]
    assert cuda[0] != cuda[1]


def test_an_estimate_needs_to_know_one_core(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(CalibrationError, match=r"one core.*16 threads only: run placer calibrate --device cpu"):
        validate_suites("reference", against=ON_GPU, estimate=True)
    assert validate_suites("reference", against=FOLDER / "reference.json", estimate=True) == 0
    assert "profile: estimate from AMD EPYC" in capsys.readouterr().out
