"""The reference systems in a report, and on GPUs that are not here."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from made_up_cells import cell

from placer.calibration.lab.validators.reference import (
    COLUMNS,
    ELSEWHERE,
    NOT_MEASURED,
    reference_tables,
    what_if_tables,
)
from placer.calibration.validation import record
from placer.calibration.validation.record import Cell, Report
from placer.calibration.validation.table import Table
from placer.errors import CalibrationError, UnknownGPU
from placer.profile import Profile, load

RECORD = Path(__file__).parents[3] / "calibration" / "records" / "cpu-intel-avx512-2-core"
#: Entries that trace in milliseconds.
QUICK = {"matrix_vector", "surface_whole_data", "square_product_staying", "square_product_copied", "conv1d_training"}
Rows = list[dict[str, str]]


def row(cells: list[Cell], rows: str) -> dict[str, str]:
    """The only row of the only table for a data set of this size, by column."""
    (table,) = [item for item in reference_tables(cells) if isinstance(item, Table)]
    (found,) = [dict(zip(COLUMNS, line, strict=True)) for line in table.rows if line[3] == rows]
    return found


CPU = cell("surface_whole_data", "cpu", 2e-3, 2e-3, batch=1000)


def surface(gpu_predicted: float | None, gpu_measured: float | None) -> dict[str, str]:
    gpu = cell("surface_whole_data", "cuda", gpu_predicted, gpu_measured, batch=1000)
    return row([CPU, replace(gpu, one_time_seconds=1.0)], "1,000")


@pytest.mark.parametrize(
    ("predicted", "measured", "choice", "first", "verdict", "reported"),
    [
        (1e-3, 3e-3, "cuda", "CPU", "wrong", "yes"),
        (3e-3, 1e-3, "cpu", "GPU", "wrong", "no"),
        (
            3e-3,
            1.4e-3,
            "cpu",
            "tie",
            "right",
            "yes",
        ),  # 2,000 steps and a second to begin with: 3.8 s against 4 s is a tie
        (1e-3, None, "cuda", "-", "-", "-"),
        (None, 1e-3, "-", "GPU", "-", "no"),  # no choice is claimed where a device is without a prediction
    ],
)
def test_the_choice_is_judged_where_both_sides_were_measured(
    predicted: float | None, measured: float | None, choice: str, first: str, verdict: str, reported: str
) -> None:
    found = surface(predicted, measured)
    judged = tuple(found[name] for name in ("choice", "finished first", "right", "as reported"))
    assert judged == (choice, first, verdict, reported)


@pytest.fixture(scope="module")
def profile() -> Profile:
    return load(RECORD / "reference_profile.json.xz")


@pytest.fixture(scope="module")
def report() -> Report:
    found = record.load(RECORD / "reference.json")
    return replace(found, cells=tuple(cell for cell in found.cells if cell.network in QUICK))


def tables(report: Report, profile: Profile, *gpus: str) -> tuple[dict[str, Rows], list[str]]:
    """Rows by column, by the title of the table; and the lines that count claims."""
    items = list(what_if_tables(report, profile, gpus))
    rows = {
        item.title: [dict(zip(ELSEWHERE, line, strict=True)) for line in item.rows]
        for item in items
        if isinstance(item, Table)
    }
    return rows, [item for item in items if isinstance(item, str) and item.startswith("clear claims")]


def test_claims_are_decided_as_reported_and_a_present_gpu_stands_beside(report: Report, profile: Profile) -> None:
    rows, counted = tables(report, profile)
    own, present = rows.values()
    assert counted[0] == "clear claims: 12 of 14 decided as reported, 1 called about the same, 1 decided otherwise"
    assert {row["CPU measured"] for row in own} == {NOT_MEASURED}
    cards = {row["variant"]: row["GPU"] for row in own}
    assert (cards["100×n matrix by a vector"], cards["Conv1d regressor"]) == ("Tesla K40m", "Tesla K80 *")
    assert all(row["CPU measured"] != NOT_MEASURED and row["GPU"] == "Tesla T4" for row in present)
    surface = {row["batch"]: row for row in present if row["variant"] == "all data in one batch on the device"}
    assert [row["choice"].partition(",")[0] for row in surface.values()] == ["CPU", "CPU", "GPU"]


def test_what_if_names_gpus_and_refuses_what_it_cannot_price(report: Report, profile: Profile) -> None:
    cells = tuple(cell for cell in report.cells if cell.network == "square_product_staying")
    rows, _ = tables(replace(report, cells=cells), profile, "K40", "RTX 4090")
    assert [title.partition("on a ")[2] for title in rows] == [
        "Tesla K40m beside it",
        "NVIDIA GeForce RTX 4090 beside it",
    ]
    with pytest.raises(UnknownGPU, match="no GPU is called 'K9000'"):
        tables(report, profile, "K9000")
    with pytest.raises(CalibrationError, match="give --suite reference"):
        tables(replace(report, cells=()), profile, "K40")
