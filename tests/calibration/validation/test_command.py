"""What ``placer validate`` does beside measuring a suite."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from placer.calibration.validation import record
from placer.calibration.validation.command import main
from placer.calibration.validation.record import Cell, Report
from placer.errors import CalibrationError, ProfileError, UnknownGPU

from .made_up import profile

FOLDER = Path(__file__).parents[3] / "calibration" / "records" / "cpu-intel-avx512-2-core"

pytestmark = pytest.mark.usefixtures("one_thread")


def test_main_replays_a_record(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, copy = tmp_path / "record.json", tmp_path / "copy.json"
    cell = Cell("mlp_tiny_sgd", "mlp", 1, "infer", "cpu", 1, measured=1e-4)
    other = replace(cell, network="lstm")
    record.save(Report("2026-01-01", {}, "other", (cell, other)), path)
    assert main(against=path, profile=profile(), output=copy) == 0
    assert "hand-made of 2026-01-01" in capsys.readouterr().out
    saved = record.load(copy)
    assert [c.measured for c in saved.cells] == [1e-4, 1e-4]
    assert all(c.predicted for c in saved.cells)
    # A suite picks its networks only; none of the cells left can be predicted on this device.
    assert main("quick", against=path, profile=profile(device="cuda"), output=copy) == 1
    assert [c.network for c in record.load(copy).cells] == ["lstm"]


def test_main_refuses_what_it_cannot_do(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="unknown suite 'fast'"):
        main("fast", profile=profile())
    with pytest.raises(CalibrationError, match="run: placer calibrate"):
        main("quick", profile=profile(device="xpu"))
    with pytest.raises(CalibrationError, match="cannot read the record"):
        main(against=tmp_path / "none.json", profile=profile())
    with pytest.raises(ProfileError):
        main("quick")


def test_main_prices_a_record_with_the_profile_it_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PLACER_HOME", str(tmp_path / "empty"))
    past = record.load(FOLDER / "reference.json")
    cells = tuple(cell for cell in past.cells if cell.network == "square_product_staying")
    named, alone = tmp_path / "named.json", tmp_path / "alone" / "record.json"
    alone.parent.mkdir()
    (tmp_path / "reference_profile.json").write_bytes((FOLDER / "reference_profile.json").read_bytes())
    for path in (named, alone):
        record.save(replace(past, cells=cells), path)
    shown = []
    for path in (named, alone):
        assert main(against=path, what_if=["K40"]) == 0
        shown.append(capsys.readouterr().out)
    assert past.profile in shown[0]
    assert "intel-xeon-avx512-2-core" in shown[1]  # without it: the shipped one of the nearest class
    assert all("on a Tesla K40m beside it" in text and "1 of 1 decided as reported" in text for text in shown)


def test_a_record_is_predicted_from_what_the_catalog_knows_of_its_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    path = FOLDER.parent / "nvidia-h100-80gb-hbm3-16-core" / "measurements.json"
    shown = []
    for source in (None, "NVIDIA H100 80GB HBM3"):
        assert main("reference", against=path, profile=source) == 0
        shown.append(capsys.readouterr().out)
    errors = [re.findall(r"^(cuda|cpu) +(\d+) +([\d.]+) %", text, re.MULTILINE)[:2] for text in shown]
    # The same steps; the CPU is priced by the calibration beside the record both times, the GPU is not.
    assert [[line[:2] for line in found] for found in errors] == [[("cuda", "19"), ("cpu", "19")]] * 2
    cuda, cpu = ([found[k][2] for found in errors] for k in (0, 1))
    assert cpu[0] == cpu[1]
    assert cuda[0] != cuda[1]


def test_what_if_needs_the_reference_systems() -> None:
    with pytest.raises(ValueError, match="give --suite reference"):
        main("quick", profile=profile(), what_if=[])
    with pytest.raises(UnknownGPU, match="'K9000'"):
        main("reference", profile=profile(), what_if=["K9000"])
