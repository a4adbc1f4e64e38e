"""A suite predicted and measured, cell by cell, on this machine; runs that go on with a record, or replay one."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from placer.calibration.measuring.step import Measurement
from placer.calibration.suite import Entry
from placer.calibration.validation import record, run
from placer.calibration.validation.cells import with_measurement
from placer.calibration.validation.record import Cell, Report
from placer.calibration.validation.run import main, replay, validate
from placer.errors import CalibrationError, ProfileError, UnknownGPU

from .made_up import measured, profile, tiny
from .test_report import text_of

RECORDS = Path(__file__).parents[3] / "calibration" / "records"
FOLDER = RECORDS / "cpu-intel-avx512-2-core"
#: A record with an accelerator, and what its profile is fitted to.
ON_GPU, JOURNAL = RECORDS / "nvidia-h200-16-core-second", "calibration.journal.xz"

pytestmark = pytest.mark.usefixtures("one_thread")


class OneLayer(nn.Module):
    """Calls ``check`` with the batch of every forward."""

    def __init__(self, check: Any) -> None:
        super().__init__()
        self.linear, self.check = nn.Linear(4, 1), check

    def forward(self, x: Tensor) -> Tensor:
        self.check(self, x)
        out: Tensor = self.linear(x)
        return out


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
        assert set(cell.baselines) == {"flops", "roofline", "isolated_sum"}
        assert cell.baselines["isolated_sum"] > 0
        assert cell.baselines["flops"] == pytest.approx((cell.flops or 0) / 1e10)
    train, infer = (cell.flops or 0.0 for cell in (report.cells[1], report.cells[3]))
    assert train > 2 * infer >= 4 * 64 * (4 * 8 + 8)


def test_what_fails_is_shown_with_its_reason() -> None:
    def build() -> nn.Module:
        raise ImportError("half installed")

    assert [cell.error for cell in measured(tiny(build=build)).cells] == ["ImportError: half installed"] * 4
    report = measured(tiny(modes=("infer",)), clock=lambda: 1.0)
    assert [cell.error for cell in report.cells] == ["TimerError: a whole step took no time by the clock"] * 2
    assert all(cell.predicted for cell in report.cells)
    said: list[str] = []
    report = measured(tiny(needs=("no_such_package_here",)), visits=3, progress=said.append)
    assert (report.cells, report.skipped) == ((), {"tiny": "not installed: no_such_package_here"})
    assert "no_such_package_here" in text_of(report)
    assert said == ["1/1 tiny: skipped, not installed: no_such_package_here"]


def test_what_cannot_be_traced_is_measured_but_not_predicted() -> None:
    here = os.getpid()

    def check(model: nn.Module, x: Tensor) -> None:
        if os.getpid() != here:
            raise RuntimeError("this process is a stranger")

    report = measured(tiny(build=lambda: OneLayer(check), traceable=False))
    assert all(cell.predicted is None and cell.measured is not None for cell in report.cells)
    assert all("stranger" in (cell.prediction_error or "") for cell in report.cells)
    assert "as expected" in text_of(report)


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
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "record.json"
    monkeypatch.setattr(run, "entries", lambda _: [tiny()])
    first = measured(tiny(), output=path)
    slower = profile(rate=1e6, created="2026-02-02T00:00:00+00:00")
    again = validate([tiny()], slower, ["cpu"], rounds=3, time_limit_per_cell=0.02, output=path)
    assert "2026-02-02" in again.profile
    gone = replace(first.cells[0], network="gone")
    replayed = replay(replace(first, cells=(*first.cells, gone)), slower)
    for other in (again.cells, replayed.cells[:4]):
        assert [cell.measured for cell in other] == [cell.measured for cell in first.cells]
        assert all((b.predicted or 0) > (a.predicted or 0) for a, b in zip(first.cells, other, strict=True))
    assert (replayed.cells[4].prediction_error, replayed.cells[4].predicted) == ("no longer in the suite", None)
    elsewhere = replay(replace(first, cells=(replace(first.cells[0], device="cuda"),)), slower).cells[0]
    assert elsewhere.predicted is elsewhere.low is None
    assert "cuda" in (elsewhere.prediction_error or "")

    record.save(replace(first, fingerprint={**first.fingerprint, "cpu": "another CPU"}), path)
    with pytest.raises(CalibrationError, match=r"another machine.*CPU: another CPU ->.*--output"):
        measured(tiny(), output=path)


def test_main_replays_a_record(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, copy = tmp_path / "record.json", tmp_path / "copy.json"
    cell = Cell("mlp_tiny_sgd", "mlp", 1, "infer", "cpu", 1, measured=1e-4)
    record.save(Report("2026-01-01", {}, "other", (cell, replace(cell, network="lstm"))), path)
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
    with pytest.raises(ValueError, match="give --suite reference"):
        main("quick", profile=profile(), what_if=[])
    with pytest.raises(UnknownGPU, match="'K9000'"):
        main("reference", profile=profile(), what_if=["K9000"])


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
        assert main(against=path, what_if=["K40"]) == 0
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
        assert main("reference", against=tmp_path, profile=source) == 0  # a record is named by its folder, too
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
        main("reference", against=ON_GPU, estimate=True)
    assert main("reference", against=FOLDER / "reference.json", estimate=True) == 0
    assert "profile: estimate from AMD EPYC" in capsys.readouterr().out


def test_later_visits_add_to_what_was_visited_before_only(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    assert measured(tiny(), output=path, visits=2, first_visit=1).cells == ()
    measured(tiny(batches=(1,), modes=("infer",)), output=path)
    again = measured(tiny(), output=path, visits=2, first_visit=1)
    assert [(cell.batch, cell.mode, len(cell.visits)) for cell in again.cells] == [(1, "infer", 2)]
    assert "1 cells visited 2 times" in text_of(again)
