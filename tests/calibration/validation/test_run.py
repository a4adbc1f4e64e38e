"""A suite predicted and measured, cell by cell, on this machine."""

from __future__ import annotations

import os
import statistics
import time
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from placer.calibration.measuring.step import Measurement
from placer.calibration.suite import Entry
from placer.calibration.validation import cells, run
from placer.calibration.validation.cells import with_measurement
from placer.calibration.validation.record import Cell
from placer.calibration.validation.run import validate

from .made_up import measured, own_clock, profile, tiny
from .test_report import text_of

pytestmark = pytest.mark.usefixtures("one_thread")


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


def test_the_model_runs_in_the_mode_of_its_cell() -> None:
    seen: list[str] = []

    class Watched(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(2, 2)

        def forward(self, x: Tensor) -> Tensor:
            seen.append(f"{'train' if self.training else 'infer'} {torch.is_grad_enabled()}")
            out: Tensor = self.linear(x)
            return out

    report = measured(tiny(build=Watched, example=lambda n: torch.randn(n, 2)))
    assert all(cell.measured for cell in report.cells)
    assert set(seen) == {"train True", "infer False"}


def test_weights_stay_numbers_after_thousands_of_steps() -> None:
    models: list[nn.Module] = []

    def build() -> nn.Module:
        models.append(nn.Linear(4, 4))
        return models[-1]

    measured(tiny(build=build, optimizer="sgd", modes=("train",)))
    assert all(torch.isfinite(p).all() and p.abs().max() < 10 for model in models for p in model.parameters())


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
    here = os.getpid()

    class AtHome(nn.Module):
        """Runs in its own process only."""

        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 1)

        def forward(self, x: Tensor) -> Tensor:
            if os.getpid() != here:
                raise RuntimeError("this process is a stranger")
            out: Tensor = self.linear(x)
            return out

    report = measured(tiny(build=AtHome, traceable=False))
    assert all(cell.predicted is None and cell.measured is not None for cell in report.cells)
    assert all("stranger" in (cell.prediction_error or "") for cell in report.cells)
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


def test_every_visit_counts_and_their_medians_are_kept() -> None:
    report = measured(tiny(batches=(1,)), visits=3, clock=time.perf_counter)
    for cell in report.cells:
        assert 3 <= len(cell.visits) == len(cell.usual) == len(cell.anyhow) <= 3 + run.MORE_VISITS
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
    real = run.predicted_cells

    def noted(entry: Entry, *rest: Any) -> list[Cell]:
        order.append(f"predict {entry.name}")
        return real(entry, *rest)

    monkeypatch.setattr(run, "predicted_cells", noted)
    networks = [tiny(name="first", batches=(1,)), tiny(name="second", batches=(1,))]
    validate(
        networks, profile(), ["cpu"], rounds=3, time_limit_per_cell=0.02, visits=2, clock=own_clock,
        progress=lambda text: order.append(text.split(":")[0].split("/")[-1]) if "cells" in text else None,
    )  # fmt: skip
    assert order == ["2 first", "predict first", "2 second", "predict second", "2 first", "2 second"]


def test_a_cell_hardly_seen_at_the_usual_pace_is_visited_again(monkeypatch: pytest.MonkeyPatch) -> None:
    shares = {
        "steady": iter([0.5, 0.05]), "slowed": iter([0.0, 0.0, 0.0, 0.8]), "hopeless": iter([0.0] * 5),
        "glimpsed": iter([0.1, 0.0, 0.6]), "halves": iter([0.4, 0.1, 0.6]),
    }  # fmt: skip

    def seen(entry: Entry, due: list[Cell], *_: object) -> list[Cell]:
        share = next(shares[entry.name])
        return [with_measurement(cell, Measurement(1.0 + share, 0.9, 2.0, 9, 1.1, 2.0, share)) for cell in due]

    monkeypatch.setattr(run, "measured_cells", seen)
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
