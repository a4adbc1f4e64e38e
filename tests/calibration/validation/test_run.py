"""A suite predicted and measured, cell by cell, on this machine; runs that go on with a record, or replay one."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from made_up_cells import measured, profile, text_of, tiny
from torch import Tensor, nn

from placer.calibration.measuring.step import Measurement
from placer.calibration.suite import Entry
from placer.calibration.validation import record, run
from placer.calibration.validation.cells import with_measurement
from placer.calibration.validation.record import Cell, Report
from placer.calibration.validation.run import main, replay, validate
from placer.errors import CalibrationError, PlacerError

pytestmark = pytest.mark.usefixtures("one_thread")


def test_a_real_network_end_to_end() -> None:
    report = measured(tiny())
    assert [(c.batch, c.mode, c.optimizer) for c in report.cells] == [
        (1, "train", "adam"),
        (64, "train", "adam"),
        (1, "infer", ""),
        (64, "infer", ""),
    ]
    for cell in report.cells:
        assert (cell.network, cell.device, cell.threads) == ("tiny", "cpu", 1)
        assert cell.error is cell.prediction_error is None
        assert 0 < cell.low < cell.predicted < cell.high
        assert 0 < cell.p10 <= cell.measured <= cell.p90
        assert cell.count >= 3
        assert (cell.repeatability or 0.0) >= 1.0
        assert cell.coverage == 0.0  # nothing was calibrated
        assert set(cell.baselines) == {"flops", "roofline"}
        assert cell.baselines["flops"] == pytest.approx((cell.flops or 0) / 1e10)
    train, infer = (cell.flops or 0.0 for cell in (report.cells[1], report.cells[3]))
    assert train > 2 * infer >= 4 * 64 * (4 * 8 + 8)


def test_what_fails_is_shown_with_its_reason() -> None:
    here = os.getpid()

    class OnlyHere(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            if os.getpid() != here:
                raise RuntimeError("this process is a stranger")
            return super().forward(x)

    class SmallBatches(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            if len(x) == 64 and x.device.type != "meta":
                raise MemoryError("no room")
            return super().forward(x)

    def build() -> nn.Module:
        raise ImportError("half installed")

    assert [cell.error for cell in measured(tiny(build=build)).cells] == ["ImportError: half installed"] * 4
    report = measured(tiny(build=lambda: SmallBatches(4, 1)))  # a step that raises spares the others
    assert [cell.error for cell in report.cells] == [None, "MemoryError: no room"] * 2
    assert [cell.measured is None for cell in report.cells] == [False, True] * 2
    report = measured(tiny(modes=("infer",)), clock=lambda: 1.0)
    assert [cell.error for cell in report.cells] == ["TimerError: a whole step took no time by the clock"] * 2
    assert all(cell.predicted for cell in report.cells)
    report = measured(tiny(build=lambda: OnlyHere(4, 1)))
    assert all(cell.predicted is None and cell.measured is not None for cell in report.cells)
    assert all("stranger" in (cell.prediction_error or "") for cell in report.cells)
    assert "stranger" in text_of(report)
    said: list[str] = []
    report = measured(tiny(needs=("no_such_package_here",)), visits=3, progress=said.append)
    assert (report.cells, report.skipped) == ((), {"tiny": "not installed: no_such_package_here"})
    assert "no_such_package_here" in text_of(report)
    assert said == ["1/1 tiny: skipped, not installed: no_such_package_here"]


def test_visits_are_compared_by_the_first_and_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    coming = iter([1.0, 4.0, 2.0])

    def seen(entry: Entry, due: list[Cell], *_: object) -> list[Cell]:
        median = next(coming)
        return [with_measurement(cell, Measurement(median, 0.9 * median, 1.1 * median, 9, 1.1)) for cell in due]

    monkeypatch.setattr(run, "measured_cells", seen)
    (found,) = validate([tiny(name="a", batches=(1,), modes=("infer",))], profile(), ["cpu"], visits=3).cells
    assert (found.measured, found.visits, found.count, found.repeatability) == (2.0, (1.0, 4.0, 2.0), 27, 2.0)
    assert (found.p10, found.p90) == pytest.approx((0.9, 4.4))


def test_a_record_is_kept_and_gone_on_with(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    first = measured(tiny(), output=path)
    assert record.load(path) == first

    def refused() -> nn.Module:
        raise AssertionError("nothing is left to do")

    assert measured(tiny(build=refused), output=path) == first
    more = measured(tiny(batches=(1, 2, 64)), output=path)
    kept = {cell.key: cell for cell in more.cells}
    assert len(kept) == 6
    assert all(kept[cell.key] == cell for cell in first.cells)
    # Later visits add to what was visited before only.
    once = tmp_path / "once.json"
    assert measured(tiny(), output=once, visits=2, first_visit=1).cells == ()
    measured(tiny(batches=(1,), modes=("infer",)), output=once)
    later = measured(tiny(), output=once, visits=2, first_visit=1)
    assert [(cell.batch, cell.mode, len(cell.visits)) for cell in later.cells] == [(1, "infer", 2)]
    assert "1 cells visited 2 times" in text_of(later)
    # A second visit, and another number of threads, which is put back.
    again = measured(tiny(), output=path, visits=2)
    assert [cell.visits[:1] for cell in again.cells[:4]] == [cell.visits for cell in first.cells]
    assert {len(cell.visits) for cell in again.cells[:4]} == {2}
    threaded = measured(tiny(), output=path, threads=(2,))
    assert threaded.cells[: len(again.cells)] == again.cells
    assert {cell.threads for cell in threaded.cells} == {1, 2}
    assert torch.get_num_threads() == 1


def test_an_interrupted_run_keeps_the_networks_that_were_done(tmp_path: Path) -> None:
    path = tmp_path / "record.json"

    def interrupt() -> nn.Module:
        raise KeyboardInterrupt

    networks = [tiny(), tiny(name="stops", build=interrupt)]
    with pytest.raises(KeyboardInterrupt):
        validate(networks, profile(), ["cpu"], rounds=3, time_limit_per_cell=0.02, output=path)
    assert {cell.network for cell in record.load(path).cells} == {"tiny"}


def test_another_profile_predicts_anew_and_another_machine_is_refused(
    tmp_path: Path,
) -> None:
    path = tmp_path / "record.json"
    first = measured(tiny(), output=path)
    slower = profile(rate=1e6, created="2026-02-02T00:00:00+00:00")
    again = validate([tiny()], slower, ["cpu"], rounds=3, time_limit_per_cell=0.02, output=path)
    assert "2026-02-02" in again.profile
    gone = replace(first.cells[0], network="gone")
    replayed = replay(replace(first, cells=(*first.cells, gone)), slower, {"tiny": tiny()})
    for other in (again.cells, replayed.cells[:4]):
        assert [cell.measured for cell in other] == [cell.measured for cell in first.cells]
        assert all((b.predicted or 0) > (a.predicted or 0) for a, b in zip(first.cells, other, strict=True))
    assert replayed.cells[4].predicted is None
    assert "no network of this name" in (replayed.cells[4].prediction_error or "")
    elsewhere = replay(replace(first, cells=(replace(first.cells[0], device="cuda"),)), slower, {"tiny": tiny()}).cells[
        0
    ]
    assert elsewhere.predicted is elsewhere.low is None
    assert "cuda" in (elsewhere.prediction_error or "")

    record.save(replace(first, fingerprint={**first.fingerprint, "cpu": "another CPU"}), path)
    with pytest.raises(CalibrationError, match=r"another machine.*CPU: another CPU ->.*--output"):
        measured(tiny(), output=path)


def test_the_quick_suite_of_a_record_is_replayed_and_others_are_in_a_checkout(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, copy = tmp_path / "record.json", tmp_path / "copy.json"
    cell = Cell("lstm", "recurrent", 1, "infer", "cpu", 1, measured=1e-4)
    record.save(Report("2026-01-01", {}, "other", (cell, replace(cell, network="bert_base"))), path)
    assert main(against=path, profile=profile(), output=copy) == 0
    shown = capsys.readouterr().out
    assert "hand-made of 2026-01-01" in shown
    assert "bert_base" in shown.partition("Not predicted")[2]
    assert [(c.measured, c.predicted is None) for c in record.load(copy).cells] == [(1e-4, False), (1e-4, True)]
    for suite in ("reference", "full", "held-out"):
        with pytest.raises(PlacerError, match=f"'{suite}' is in the repository, not in the package.*--suite quick"):
            main(suite)
