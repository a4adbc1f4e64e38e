"""A record to share: what is in it and what is not, and that it is predicted anew wherever it lies."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from made_up_cells import tiny

from placer import machine, profile
from placer.calibration.measuring.step import Measurement
from placer.calibration.suite import QUICK, Entry
from placer.calibration.validation import record, run, sharing
from placer.calibration.validation.cells import with_measurement
from placer.calibration.validation.record import Cell, Report
from placer.calibration.validation.run import main, profile_of_record
from placer.errors import CalibrationError, PlacerError, ProfileTooNew
from placer.profile import Device, FamilyFit, Profile

#: What nobody shares: a user, a host and a folder.
SECRETS = ("alice", "alices-laptop", "/home")
TOP = {"schema", "placer", "created", "fingerprint", "profile", "calibration", "cells", "skipped"}
CALIBRATION = {
    "format", "schema", "created", "complete", "seconds", "fingerprint", "warnings", "noise", "fits", "samples",
}  # fmt: skip
RECORDS = Path(__file__).parents[3] / "calibration" / "records"


@pytest.fixture
def calibration() -> Profile:
    """That of a machine with a GPU, with all that an unlucky user may have in it."""
    known = profile.load("intel-xeon-avx512-2-core")
    gpu = {"device": "cuda", "name": "Tesla T4", "memory_bytes": 2**34, "driver": "550", "uuid": "GPU-alice"}
    return replace(
        known,
        name="/home/alice/profiles/alices-laptop-0123.json",
        fingerprint={**known.fingerprint, "accelerators": [gpu], "host": "alices-laptop"},
        warnings=("1 probe left out: no file /home/alice/x",),
        unusable={"cuda": "cannot open /home/alice/libcuda.so"},
    )


@pytest.fixture
def report(calibration: Profile) -> Report:
    """Two steps on the CPU, one of which failed, and one on the GPU."""
    timed = Cell("lstm", "recurrent", 32, "train", "cpu", 2, "adam", predicted=0.00211234567, low=1e-3, high=3e-3,
                 coverage=1.0, flops=1e6, measured=2e-3, count=9, visits=(2e-3, 2.1e-3, 1.9e-3), repeatability=1.05,
                 baselines={"flops": 1e-5})  # fmt: skip
    failed = replace(timed, batch=256, measured=None, visits=(), error="MemoryError: /home/alice/model.py is too large")
    unpredicted = replace(timed, device="cuda", predicted=None, prediction_error="defect: KeyError: '/home/alice'")
    title = f"alices-laptop-0123.json of {calibration.created}"
    cells = (timed, failed, unpredicted)
    return Report("2026-11-29T10:00:00+00:00", calibration.fingerprint, title, cells, {"gcn": "not installed: x"})


def share(report: Report, calibration: Profile, target: Path) -> str:
    """Shares it; what was shown."""
    shown = io.StringIO()
    sharing.share(report, calibration, target, shown)
    return shown.getvalue()


def texts(value: Any) -> Iterator[str]:
    """All names and texts of a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, item in value.items():
            yield name
            yield from texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from texts(item)


def check_format(path: Path) -> None:
    """The file holds what is told of in docs/commands/validate.md, and nothing else."""
    assert path.stat().st_size <= sharing.MOST_BYTES
    found = json.loads(path.read_text(encoding="utf-8"))
    assert set(found) == TOP
    assert set(found["calibration"]) == CALIBRATION
    for facts in (found["fingerprint"], found["calibration"]["fingerprint"]):
        assert set(facts) <= {*sharing.MACHINE, "accelerators"}
        assert all(set(each) <= set(sharing.ACCELERATOR) for each in facts["accelerators"])
    assert all(set(cell) <= set(sharing.CELL) for cell in found["cells"])
    assert found["calibration"]["warnings"] == found["calibration"]["samples"] == []
    of_errors = [cell[name] for cell in found["cells"] for name in sharing.ERRORS if name in cell]
    assert all(text.isidentifier() for text in of_errors)
    of_machine = {name: found[name] for name in TOP - {"calibration"}}
    assert not [text for text in texts(of_machine) if "/" in text or "\\" in text or "@" in text]
    here = (str(Path.home()), machine.machine_id())
    assert not [text for text in texts(found) if any(name in text for name in (*SECRETS, *here))]


def test_a_shared_file_holds_what_is_told_and_nothing_else(
    report: Report, calibration: Profile, tmp_path: Path
) -> None:
    path = tmp_path / "shared.json"
    shown = share(report, calibration, path)
    check_format(path)
    found = json.loads(path.read_text(encoding="utf-8"))
    assert [cell.get("error") for cell in found["cells"]] == [None, "MemoryError", None]
    assert found["cells"][2]["prediction_error"] == "KeyError"
    assert found["cells"][0]["predicted"] == 0.0021123
    assert f"{path}, {path.stat().st_size:,} bytes" in shown
    assert all(name in shown for name in ("placer", "created", "fingerprint", "calibration", "cells", "skipped"))
    assert "placer itself sends nothing, ever" in shown
    assert "busy" not in shown
    slower = replace(report.cells[0], repeatability=2.0)
    assert "This machine was busy" in share(replace(report, cells=(slower,)), calibration, tmp_path / "busy.json")


@pytest.mark.parametrize("path", sorted(RECORDS.glob("*.json")), ids=lambda path: path.name)
def test_the_shared_records_of_this_repository_hold_nothing_else_either(path: Path) -> None:
    check_format(path)
    assert record.load(path).calibration is not None


def test_a_shared_record_is_predicted_anew_by_what_it_holds(
    report: Report, calibration: Profile, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, copy = tmp_path / "shared.json", tmp_path / "copy.json"
    entry = next(entry for entry in QUICK if entry.name == "lstm")
    predicted = run.replay(report, calibration, {"lstm": entry})
    share(predicted, calibration, path)
    assert main(against=path, output=copy) == 0
    assert "shared.json of" in capsys.readouterr().out
    for before, after in zip(predicted.cells, record.load(copy).cells, strict=True):
        assert (after.key, after.visits) == (before.key, before.visits)
        assert after.predicted == (None if before.predicted is None else pytest.approx(before.predicted, rel=1e-4))


def test_a_calibration_of_other_networks_gives_an_estimate(
    report: Report, calibration: Profile, tmp_path: Path
) -> None:
    path = tmp_path / "shared.json"
    rates = {"flops/float32": 1e13, "bytes_per_second": 1e11, "launch_seconds": 1e-5}
    gpu = Device("cuda", 2, rates, {"matmul": FamilyFit((), {"": 0.1}, 0.2, 9)}, {}, {"base": 0.1}, gpu="Tesla T4")
    old = replace(calibration, fits=tuple(replace(fit, edition=1) for fit in (*calibration.fits, gpu)))
    share(report, old, path)
    found = profile_of_record(record.load(path), path)
    assert found.estimated
    assert {(fit.device, fit.threads) for fit in found.fits} == {("cpu", 1), ("cpu", 2), ("cuda", 2)}
    assert (found.fit("cuda").rates, found.fit("cuda").families) == (rates, {})
    entry = next(entry for entry in QUICK if entry.name == "lstm")
    estimate, known = (run.replay(report, by, {"lstm": entry}).cells[0] for by in (found, calibration))
    assert estimate.predicted == pytest.approx(known.predicted, rel=0.2)


def changed(path: Path, **changes: Any) -> None:
    """The same file with another calibration."""
    found = json.loads(path.read_text(encoding="utf-8"))
    found["calibration"] = {**found["calibration"], **changes}
    path.write_text(json.dumps(found), encoding="utf-8")


def test_what_cannot_be_shared_or_read_is_refused(report: Report, calibration: Profile, tmp_path: Path) -> None:
    path = tmp_path / "shared.json"
    facts, day = calibration.fingerprint, report.created
    assert sharing.target_of("", facts, day, calibration).name == "tesla-t4-2-core-2026-11-29.json"
    with pytest.raises(CalibrationError, match=r"none \(CPU: .*\); run placer calibrate, then placer validate --share"):
        sharing.target_of(str(path), {**facts, "cpu": "another CPU"}, day, calibration)
    estimate = replace(calibration, fits=tuple(replace(fit, estimated=True) for fit in calibration.fits))
    with pytest.raises(CalibrationError, match="it was never calibrated"):
        sharing.target_of(str(path), facts, day, estimate)
    with pytest.raises(CalibrationError, match="nothing to share: no step was both"):
        share(replace(report, cells=report.cells[1:]), calibration, path)
    with pytest.raises(CalibrationError, match=r"more than the 500,000 .* share the quick suite"):
        share(replace(report, cells=report.cells * 1000), calibration, path)
    assert not path.exists()
    share(report, calibration, path)
    with pytest.raises(PlacerError, match="exists, and is not overwritten"):
        sharing.target_of(str(path), facts, day, calibration)
    changed(path, fits=[{}])
    with pytest.raises(CalibrationError, match=r"the calibration within .* is damaged.*write the record anew with"):
        profile_of_record(record.load(path), path)
    changed(path, schema=10**6)
    with pytest.raises(ProfileTooNew, match="upgrade placer"):
        profile_of_record(record.load(path), path)
    changed(path, schema=1)
    assert profile_of_record(record.load(path), path).name.endswith("intel-xeon-avx512-2-core.json")


def timed(entry: Entry, due: list[Cell], *_: object) -> list[Cell]:
    """One more visit of each cell, of a millisecond."""
    return [with_measurement(cell, Measurement(1e-3, 1e-3, 1e-3, 9, 1.0)) for cell in due]


def test_a_run_is_shared_under_the_usual_name(
    handmade_profile: Profile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(run, "QUICK", (tiny(),))
    monkeypatch.setattr(run, "measured_cells", timed)  # how long that takes depends on what else runs
    assert main(profile=handmade_profile, share="") == 0
    (path,) = tmp_path.iterdir()
    assert path.name.endswith(f"-{machine.usable_cores()}-core-{path.stem[-10:]}.json")
    assert f"Shared record: {path.name}" in capsys.readouterr().out
    check_format(path)
    assert {len(cell.visits) for cell in record.load(path).cells} == {run.VISITS}
