from __future__ import annotations

import io
import json
import statistics
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from placer import machine
from placer.calibration.measuring.interleaved import Measurement
from placer.calibration.suite import Entry
from placer.calibration.validation import cells, record
from placer.calibration.validation import run as validation
from placer.calibration.validation.record import Cell, Report
from placer.calibration.validation.report import render
from placer.calibration.validation.run import main, replay, validate
from placer.errors import CalibrationError, PlacerError, ProfileError
from placer.profile.profile import DeviceFit, Profile


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def profile(rate: float = 1e10, created: str = "2026-01-01T00:00:00+00:00", device: str = "cpu") -> Profile:
    """A profile without samples: every price is its physical floor."""
    rates = {"flops/float32": rate, "bytes_per_second": rate, "dispatch_seconds": 1e-6, "launch_seconds": 1e-6}
    fit = DeviceFit(device, 1, rates, {}, {}, {"base": 0.1, "ops": 1.0})
    return Profile(1, created, machine.fingerprint(), (), (fit,), {}, (), True, 1.0, name="hand-made")


def tiny(**changes: Any) -> Entry:
    made = Entry(
        "tiny", "mlp", lambda: nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)), lambda n: torch.randn(n, 4),
        (1, 64),
    )  # fmt: skip
    return replace(made, **changes)


def without_pulse() -> float:
    """A clock that is not taken for the machine's own: nothing it times is left out, whoever disturbs this machine."""
    return time.perf_counter()


def measured(entry: Entry, **options: Any) -> Report:
    given = {"clock": without_pulse, **options}
    return validate([entry], profile(), ["cpu"], rounds=3, time_limit_per_cell=0.02, **given)


def test_a_real_network_end_to_end() -> None:
    report = measured(tiny())
    assert [(c.batch, c.mode, c.optimizer) for c in report.cells] == [
        (1, "train", "adam"), (64, "train", "adam"), (1, "infer", ""), (64, "infer", ""),
    ]  # fmt: skip
    for cell in report.cells:
        assert (cell.network, cell.device, cell.threads, cell.error, cell.prediction_error) == (
            "tiny", "cpu", 1, None, None,
        )  # fmt: skip
        assert cell.predicted is not None
        assert cell.measured is not None
        assert cell.low is not None
        assert cell.high is not None
        assert 0 < cell.low < cell.predicted < cell.high
        assert cell.p10 is not None
        assert cell.p90 is not None
        assert 0 < cell.p10 <= cell.measured <= cell.p90
        assert cell.count >= 3
        assert cell.repeatability is not None
        assert cell.repeatability >= 1.0
        assert cell.coverage == 0.0  # nothing was calibrated
        assert set(cell.baselines) == {"flops", "roofline", "isolated_sum"}
        assert cell.baselines["isolated_sum"] > 0
        assert cell.baselines["flops"] == pytest.approx((cell.flops or 0) / 1e10)
    train, infer = report.cells[1], report.cells[3]
    assert infer.flops is not None
    assert infer.flops >= 2 * 64 * (4 * 8 + 8)
    assert train.flops is not None
    assert train.flops > 2 * infer.flops


def test_the_model_runs_in_the_mode_of_its_cell_and_prediction_comes_first() -> None:
    seen: list[str] = []

    class Watched(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(2, 2)

        def forward(self, x: Tensor) -> Tensor:
            seen.append(f"{x.device.type} {'train' if self.training else 'infer'} {torch.is_grad_enabled()}")
            out: Tensor = self.linear(x)
            return out

    report = measured(tiny(build=Watched, example=lambda n: torch.randn(n, 2)))
    assert all(cell.measured for cell in report.cells)
    real = [line for line in seen if line.startswith("cpu")]
    assert set(real) == {"cpu train True", "cpu infer False"}
    assert seen[0].startswith("meta")
    assert not any(line.startswith("meta") for line in seen[seen.index(real[0]) :])


def test_weights_stay_numbers_after_thousands_of_steps() -> None:
    models: list[nn.Module] = []

    def build() -> nn.Module:
        models.append(nn.Linear(4, 4))
        return models[-1]

    measured(tiny(build=build, optimizer="sgd", modes=("train",)))
    assert all(torch.isfinite(p).all() and p.abs().max() < 10 for model in models for p in model.parameters())


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
    monkeypatch.setattr(validation, "entries", lambda _: [tiny()])
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


def test_the_clock_is_injectable() -> None:
    report = measured(tiny(modes=("infer",)), clock=lambda: 1.0)
    assert [cell.error for cell in report.cells] == ["TimerError: a whole step took no time by the clock"] * 2
    assert all(cell.predicted for cell in report.cells)


def test_a_network_that_cannot_be_built_is_shown() -> None:
    def build() -> nn.Module:
        raise ImportError("half installed")

    report = measured(tiny(build=build))
    assert [cell.error for cell in report.cells] == ["ImportError: half installed"] * 4


def test_what_cannot_be_traced_is_measured_but_not_predicted() -> None:
    class Locked(nn.Module):
        """Cannot be copied."""

        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 1)
            self.lock = threading.Lock()

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.linear(x)
            return out

    report = measured(tiny(build=Locked, traceable=False))
    assert all(cell.predicted is None and cell.measured is not None for cell in report.cells)
    assert all("copied" in (cell.prediction_error or "") for cell in report.cells)
    shown = text_of(report)
    assert "as expected" in shown


def test_missing_packages_skip_a_network_visibly_and_once() -> None:
    said: list[str] = []
    report = measured(tiny(needs=("no_such_package_here",)), visits=3, progress=said.append)
    assert report.cells == ()
    assert report.skipped == {"tiny": "not installed: no_such_package_here"}
    assert "no_such_package_here" in text_of(report)
    assert said == ["1/1 tiny: skipped, not installed: no_such_package_here"]


def test_thread_counts_are_cells_and_are_restored() -> None:
    report = measured(tiny(modes=("infer",)), threads=(2, 1))
    assert [(cell.threads, cell.batch) for cell in report.cells] == [(2, 1), (2, 64), (1, 1), (1, 64)]
    assert torch.get_num_threads() == 1


def test_replay_measures_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validation, "entries", lambda _: [tiny()])
    report = measured(tiny())
    gone = replace(report.cells[0], network="gone")
    replayed = replay(replace(report, cells=(*report.cells, gone)), profile(rate=1e6))
    assert [c.measured for c in replayed.cells[:4]] == [c.measured for c in report.cells]
    assert all((b.predicted or 0) > (a.predicted or 0) for a, b in zip(report.cells, replayed.cells, strict=False))
    assert replayed.cells[4].prediction_error == "no longer in the suite"
    assert replayed.cells[4].predicted is None


def test_replay_on_a_device_the_profile_does_not_know() -> None:
    cell = Cell("mlp_tiny_sgd", "mlp", 1, "infer", "cuda", 1, measured=1.0, predicted=1.0, low=0.5, high=2.0)
    report = Report("2026-01-01", {}, "other", (cell,))
    (replayed,) = replay(report, profile()).cells
    assert replayed.predicted is None
    assert replayed.low is None
    assert "cuda" in (replayed.prediction_error or "")
    assert replayed.measured == 1.0


def hand_made() -> Report:
    cells = [
        Cell(
            "net", "mlp", batch, "train", device, 2, predicted=predicted, measured=seen, low=predicted * 0.8,
            high=predicted * 1.2, coverage=0.9, p10=seen, p90=seen, count=30, repeatability=1.02, flops=1e6 * batch,
        )
        for device, batch, predicted, seen in (
            ("cpu", 1, 1e-3, 1.1e-3), ("cpu", 64, 1e-2, 3e-2), ("cuda", 1, 5e-3, 4e-3), ("cuda", 64, 5e-3, 6e-3),
        )
    ]  # fmt: skip
    failed = Cell("net", "mlp", 4096, "train", "cuda", 2, error="OutOfMemoryError: no", prediction_error="unknown")
    return Report("2026-01-01", {"cpu": "x"}, "hand-made", (*cells, failed), {"gone": "not installed: y"})


def text_of(report: Report) -> str:
    stream = io.StringIO()
    render(report, stream)
    return stream.getvalue()


def test_report_text_in_a_pipe() -> None:
    shown = text_of(hand_made())
    assert "\x1b" not in shown
    assert "│" not in shown
    lines = shown.splitlines()
    header = lines.index("Prediction error by device") + 1
    assert lines[header].split("  ")[0] == "device"
    cpu = lines[header + 1].split()
    assert cpu[:2] == ["cpu", "2"]
    assert cpu[2] == "37.9"  # |1/1.1 - 1| = 9.1 %, |1/3 - 1| = 66.7 %
    worst = lines.index("The 4 worst predictions") + 2
    assert lines[worst].startswith("net, batch 64, train on cpu with 2 threads")
    assert "10.0 ms" in lines[worst]
    assert "30.0 ms" in lines[worst]
    assert "Decisions on the device over 2 scenarios" in shown
    bands = lines.index("cpu, by batch") + 2
    assert [line.split()[0] for line in lines[bands : bands + 2]] == ["1", "16-127"]
    assert "net, batch 4096, train on cuda with 2 threads  OutOfMemoryError: no" in shown
    assert "gone     not installed: y" in shown


def test_report_text_on_a_terminal() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Terminal()
    render(hand_made(), stream)
    assert "Prediction error by device" in stream.getvalue()
    assert "━" in stream.getvalue()


def test_main_replays_a_record(tmp_path: Path) -> None:
    path, copy = tmp_path / "record.json", tmp_path / "copy.json"
    cell = Cell("mlp_tiny_sgd", "mlp", 1, "infer", "cpu", 1, measured=1e-4)
    other = replace(cell, network="lstm")
    record.save(Report("2026-01-01", {}, "other", (cell, other)), path)
    stream = io.StringIO()
    code = main(against=path, profile=profile(), progress=False, stream=stream, output=copy)
    assert code == 0
    assert "hand-made of 2026-01-01" in stream.getvalue()
    saved = record.load(copy)
    assert [c.measured for c in saved.cells] == [1e-4, 1e-4]
    assert all(c.predicted for c in saved.cells)
    # A suite picks its networks only; none of the cells left can be predicted on this device.
    assert main("quick", against=path, profile=profile(device="cuda"), progress=False, stream=stream, output=copy) == 1
    assert [c.network for c in record.load(copy).cells] == ["lstm"]


def test_main_refuses_what_it_cannot_do(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="unknown suite 'fast'"):
        main("fast", profile=profile())
    with pytest.raises(CalibrationError, match="not on this machine"):
        main("quick", profile=profile(), devices=["xpu"])
    with pytest.raises(CalibrationError, match="run: placer calibrate"):
        main("quick", profile=profile(device="xpu"))
    with pytest.raises(CalibrationError, match="cannot read the record"):
        main(against=tmp_path / "none.json", profile=profile())
    with pytest.raises(ProfileError):
        main("quick")


def damaged(**changes: Any) -> str:
    cell = {**json.loads(json.dumps(Cell("n", "f", 1, "train", "cpu", 1).__dict__)), **changes}
    document = {"schema": 1, "created": "", "fingerprint": {}, "profile": "", "skipped": {}, "cells": [cell]}
    return json.dumps(document)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("", "not JSON"),
        ("[]", "expected an object"),
        ('{"schema": 5}', "schema 5.*upgrade"),
        ('{"schema": 1}', "no cells"),
        (damaged(measured=-1.0), r"cells\[0\].measured"),
        (damaged(measured=0), "takes time"),
        (damaged(predicted="1"), r"cells\[0\].predicted"),
        (damaged(batch=1.5), r"cells\[0\].batch"),
        (damaged(network="\x1b[2J"), r"cells\[0\].network"),
        (damaged(traceable=1), "true or false"),
        (damaged(extra=1), "extra"),
        (damaged(baselines={"x": float("nan")}), "baselines"),
        ("[" * 100_000, "not a validation record"),
    ],
)
def test_damaged_records_are_refused(content: str, complaint: str, tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    path.write_text(content)
    with pytest.raises(PlacerError, match=complaint):
        record.load(path)


def test_every_visit_counts_and_their_medians_are_kept() -> None:
    report = measured(tiny(batches=(1,)), visits=3, clock=time.perf_counter)
    for cell in report.cells:
        assert 3 <= len(cell.visits) == len(cell.usual) == len(cell.anyhow) <= 3 + validation.MORE_VISITS
        # Visits that the machine was at another pace for do not count, on a machine that has several.
        least = cells.LEAST_SHARE * max(cell.usual)
        counted = [v for v, share in zip(cell.visits, cell.usual, strict=True) if share >= least]
        assert cell.measured == statistics.median(counted)
        assert cell.count >= 3 * len(counted) / 2
        assert cell.p10 is not None
        assert cell.p90 is not None
        assert cell.p10 <= min(counted) <= max(counted) <= cell.p90


def test_networks_are_visited_in_turn_and_predicted_before_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    real = validation.predicted_cells

    def noted(entry: Entry, *rest: Any) -> list[Cell]:
        order.append(f"predict {entry.name}")
        return real(entry, *rest)

    monkeypatch.setattr(validation, "predicted_cells", noted)
    networks = [tiny(name="first", batches=(1,)), tiny(name="second", batches=(1,))]
    validate(
        networks, profile(), ["cpu"], rounds=3, time_limit_per_cell=0.02, visits=2, clock=without_pulse,
        progress=lambda text: order.append(text.split(":")[0].split("/")[-1]) if "cells" in text else None,
    )  # fmt: skip
    assert order == ["2 first", "predict first", "2 second", "predict second", "2 first", "2 second"]


def test_a_run_that_was_cut_short_goes_on_with_the_visits_that_are_missing(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    first = measured(tiny(batches=(1,)), output=path)
    again = measured(tiny(batches=(1,)), output=path, visits=2)
    assert [cell.visits[:1] for cell in again.cells] == [cell.visits for cell in first.cells]
    assert {len(cell.visits) for cell in again.cells} == {2}


def test_a_record_of_the_first_format_had_one_visit(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    measured(tiny(batches=(1,)), output=path)
    document = json.loads(path.read_text())
    document["schema"] = 1
    for cell in document["cells"]:
        del cell["visits"], cell["one_time_seconds"], cell["usual"], cell["anyhow"]
    path.write_text(json.dumps(document))
    assert all(cell.visits == (cell.measured,) for cell in record.load(path).cells)


def test_a_record_of_the_second_format_knows_no_one_time_cost(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    report = measured(tiny(batches=(1,)), output=path)
    document = json.loads(path.read_text())
    document["schema"] = 2
    for cell in document["cells"]:
        del cell["one_time_seconds"], cell["usual"], cell["anyhow"]
    path.write_text(json.dumps(document))
    older = tuple(replace(cell, one_time_seconds=None, usual=(1.0,), anyhow=cell.visits) for cell in report.cells)
    assert record.load(path).cells == older


def test_nothing_was_left_out_of_a_record_of_the_third_format(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    report = measured(tiny(batches=(1,)), output=path, visits=2)
    document = json.loads(path.read_text())
    document["schema"] = 3
    for cell in document["cells"]:
        del cell["usual"], cell["anyhow"]
    path.write_text(json.dumps(document))
    older = [replace(cell, usual=(1.0,) * len(cell.visits), anyhow=cell.visits) for cell in report.cells]
    assert list(record.load(path).cells) == older
    again = measured(tiny(batches=(1,)), output=path, visits=3)
    assert all(len(cell.visits) == len(cell.usual) == len(cell.anyhow) >= 3 for cell in again.cells)


def test_a_cell_hardly_seen_at_the_usual_pace_is_visited_again(monkeypatch: pytest.MonkeyPatch) -> None:
    shares = {
        "steady": iter([0.5, 0.05]), "slowed": iter([0.0, 0.0, 0.0, 0.8]), "hopeless": iter([0.0] * 5),
        "glimpsed": iter([0.1, 0.0, 0.6]), "halves": iter([0.4, 0.1, 0.6]),
    }  # fmt: skip

    def seen(entry: Entry, due: list[Cell], *_: object) -> list[Cell]:
        share = next(shares[entry.name])
        return [cells._with_measurement(cell, Measurement(1.0 + share, 0.9, 2.0, 9, 1.1, 2.0, share)) for cell in due]

    monkeypatch.setattr(validation, "measured_cells", seen)
    networks = [tiny(name=name, batches=(1,), modes=("infer",)) for name in shares]
    found = {cell.network: cell for cell in validate(networks, profile(), ["cpu"], visits=2).cells}
    assert {name: cell.usual for name, cell in found.items()} == {
        "steady": (0.5, 0.05), "slowed": (0.0, 0.0, 0.0, 0.8), "hopeless": (0.0,) * 5,
        "glimpsed": (0.1, 0.0, 0.6), "halves": (0.4, 0.1, 0.6),
    }  # fmt: skip
    # What was measured at the usual pace counts alone, where there is any, and a glimpse does not beside a good look.
    assert {name: cell.measured for name, cell in found.items()} == {
        "steady": 1.5, "slowed": 1.8, "hopeless": 1.0, "glimpsed": 1.6, "halves": 1.5,
    }  # fmt: skip
    assert {name: cell.count for name, cell in found.items()} == {
        "steady": 9, "slowed": 9, "hopeless": 45, "glimpsed": 9, "halves": 18,
    }  # fmt: skip
    assert found["steady"].anyhow == (2.0, 2.0)
    assert (found["slowed"].repeatability, found["hopeless"].repeatability) == (1.1, 1.0)


def test_a_network_can_say_where_its_batches_live(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    real = cells.predict

    def noted(*args: Any, **options: Any) -> Any:
        asked.append(options["data"])
        return real(*args, **options)

    monkeypatch.setattr(cells, "predict", noted)
    for own in (None, "device", "pinned"):
        measured(tiny(modes=("infer",), batches=(1,), data=own))
    assert asked == ["host", "device", "pinned"]
