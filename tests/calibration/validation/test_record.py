"""Records of every format on disk, and damaged ones."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from placer.calibration.validation import record
from placer.calibration.validation.record import Cell
from placer.errors import PlacerError

from .made_up import measured, tiny

pytestmark = pytest.mark.usefixtures("one_thread")


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
