"""Runs that go on with the record of an earlier one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from placer.calibration.validation import record, run
from placer.calibration.validation.run import validate
from placer.errors import CalibrationError

from .made_up import measured, profile, tiny

pytestmark = pytest.mark.usefixtures("one_thread")


def test_record_round_trip_and_resume(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    first = measured(tiny(), output=path)
    assert record.load(path) == first

    builds: list[int] = []

    def build() -> nn.Module:
        builds.append(1)
        return tiny().build()

    lines: list[str] = []
    again = measured(tiny(build=build), output=path, progress=lines.append)
    assert again == first
    assert builds == []
    assert lines == []

    more = measured(tiny(build=build, batches=(1, 2, 64)), output=path)
    assert builds
    kept = {cell.key: cell for cell in more.cells}
    assert len(kept) == 6
    assert all(kept[cell.key] == cell for cell in first.cells)


def test_another_number_of_threads_adds_cells_to_a_record(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    first = measured(tiny(modes=("infer",)), output=path)
    torch.set_num_threads(2)
    second = measured(tiny(modes=("infer",)), output=path)
    assert second.cells[:2] == first.cells
    assert [cell.threads for cell in second.cells] == [1, 1, 2, 2]


def test_an_interrupted_run_keeps_the_networks_that_were_done(tmp_path: Path) -> None:
    path = tmp_path / "record.json"

    def interrupt() -> nn.Module:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        validate(
            [tiny(), tiny(name="stops", build=interrupt)], profile(), ["cpu"], rounds=3, time_limit_per_cell=0.02,
            output=path,
        )  # fmt: skip
    assert {cell.network for cell in record.load(path).cells} == {"tiny"}


def test_resuming_with_another_profile_predicts_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "record.json"
    monkeypatch.setattr(run, "entries", lambda _: [tiny()])
    first = measured(tiny(), output=path)
    slower = profile(rate=1e7, created="2026-02-02T00:00:00+00:00")
    again = validate([tiny()], slower, ["cpu"], rounds=3, time_limit_per_cell=0.02, output=path)
    assert [cell.measured for cell in again.cells] == [cell.measured for cell in first.cells]
    assert all((b.predicted or 0) > (a.predicted or 0) for a, b in zip(first.cells, again.cells, strict=True))
    assert "2026-02-02" in again.profile


def test_a_record_of_another_machine_is_not_continued(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    report = measured(tiny(), output=path)
    record.save(replace(report, fingerprint={**report.fingerprint, "cpu": "another CPU"}), path)
    with pytest.raises(CalibrationError, match=r"another machine.*CPU: another CPU ->.*--output"):
        measured(tiny(), output=path)


def test_failures_are_recorded_and_tried_again(tmp_path: Path) -> None:
    path = tmp_path / "record.json"

    class Broken(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 1)

        def forward(self, x: Tensor) -> Tensor:
            if x.shape[0] == 64:
                raise RuntimeError("too\nlarge")
            out: Tensor = self.linear(x)
            return out

    report = measured(tiny(build=Broken), output=path)
    errors = {(cell.batch, cell.mode): cell.error for cell in report.cells}
    assert errors[1, "train"] is None
    assert errors[64, "train"] == "RuntimeError: too large"
    assert "TraceError" in (next(c.prediction_error for c in report.cells if c.batch == 64) or "")
    assert all(cell.error is None for cell in measured(tiny(), output=path).cells)


def test_a_run_that_was_cut_short_goes_on_with_the_visits_that_are_missing(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    first = measured(tiny(batches=(1,)), output=path)
    again = measured(tiny(batches=(1,)), output=path, visits=2)
    assert [cell.visits[:1] for cell in again.cells] == [cell.visits for cell in first.cells]
    assert {len(cell.visits) for cell in again.cells} == {2}
