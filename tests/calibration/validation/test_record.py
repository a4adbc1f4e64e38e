"""Records of every format on disk, and damaged ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from placer.calibration.validation import record
from placer.calibration.validation.record import Cell
from placer.errors import PlacerError

pytestmark = pytest.mark.usefixtures("one_thread")


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
