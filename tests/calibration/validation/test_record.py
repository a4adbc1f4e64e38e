"""Records on disk: damaged ones, and those that are committed, whose predictions are as good as ever."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from placer import load_profile
from placer.calibration.lab.suite import entries, entries_by_name
from placer.calibration.validation import record
from placer.calibration.validation.compare import score
from placer.calibration.validation.decisions import thread_decisions
from placer.calibration.validation.record import Cell
from placer.calibration.validation.run import profile_of_record, replay
from placer.errors import PlacerError

RECORDS = Path(__file__).parents[3] / "calibration" / "records"


def damaged(**changes: Any) -> str:
    cell = {**json.loads(json.dumps(Cell("n", "f", 1, "train", "cpu", 1).__dict__)), **changes}
    document = {"schema": record.SCHEMA, "created": "", "fingerprint": {}, "profile": "", "skipped": {}}
    return json.dumps({**document, "cells": [cell]})


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("", "not a validation record"),
        ("[]", "not a validation record: Expected `object`"),
        ('{"schema": 5}', "schema 5.*upgrade"),
        ('{"schema": 3}', "schema 3.*measure again"),
        ('{"schema": 4}', "missing required field"),
        ('{"schema": 5, "format": "placer machine profile"}', "is a placer machine profile.*give it to --profile"),
        (damaged(measured=-1.0), r"`>= 0.*measured|measured"),
        (damaged(measured=0), "measured"),
        (damaged(predicted="1"), "predicted"),
        (damaged(batch=1.5), "batch"),
        (damaged(network="\x1b[2J"), "network"),
        (damaged(traceable=1), "traceable"),
        (damaged(baselines={"x": float("nan")}), "malformed"),
        ("[" * 100_000, "not a validation record"),
    ],
)
def test_damaged_records_are_refused(content: str, complaint: str, tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    path.write_text(content)
    with pytest.raises(PlacerError, match=complaint):
        record.load(path)


@pytest.fixture(scope="module")
def with_threads() -> Sequence[Cell]:
    """The quick suite with one thread and with two, by the calibration of the day."""
    folder = RECORDS / "cpu-avx512-2-core"
    return replay(
        record.load(folder / "threads.json"), load_profile(folder / "profile.json.xz"), entries_by_name()
    ).cells


def check_figures(cells: Sequence[Cell]) -> None:
    reached = score(cells)
    assert reached.rows >= 40
    assert reached.median_error < 0.17
    assert reached.p90_error < 0.45
    assert reached.beyond_2x < 0.05
    assert reached.inside > 0.85


def test_the_figures_reached_are_held(with_threads: Sequence[Cell]) -> None:
    check_figures(with_threads)


@pytest.mark.soak
@pytest.mark.parametrize(
    "name",
    [
        "cpu-2-core",
        "cpu-avx512-2-core",
        "cpu-avx512-2-core-calm",
        "cpu-avx512-2-core-november",
        "cpu-intel-avx512-2-core",
    ],
)
def test_the_figures_reached_are_held_on_every_machine(name: str) -> None:
    path = RECORDS / name / "measurements.json"
    found = record.load(path)
    profile = profile_of_record(found, path)
    names = {entry.name for entry in entries("quick")}
    kept = replace(found, cells=tuple(cell for cell in found.cells if cell.network in names))
    check_figures(replay(kept, profile, entries_by_name()).cells)


def test_every_reference_system_is_priced_within_a_third() -> None:
    folder = RECORDS / "cpu-intel-avx512-2-core"
    profile = load_profile(folder / "reference_profile.json.xz")
    cells = replay(record.load(folder / "reference.json"), profile, entries_by_name()).cells
    assert {cell.network for cell in cells} == {entry.name for entry in entries("reference")}
    ratios = [cell.predicted / cell.measured for cell in cells if cell.predicted and cell.measured]
    assert len(ratios) == len(cells)
    assert 0.75 < min(ratios) < max(ratios) < 1.25
    reached = score(cells)
    assert reached.median_error <= 0.08


def test_the_decision_on_threads_is_held(with_threads: Sequence[Cell]) -> None:
    rows = {row.rule: row for row in thread_decisions(with_threads)}
    reached, others = rows["placer"], [rows["always all threads"], rows["always 1 thread"]]
    assert reached.scenarios == 46
    assert reached.wrong <= 7
    assert all(reached.wrong <= 0.5 * other.wrong for other in others)
    assert all(reached.mean_regret < 0.5 * other.mean_regret for other in others)
