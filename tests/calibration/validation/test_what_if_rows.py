"""The reference systems on GPUs that are not here, held against what their accounts reported."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from placer.calibration.suite.reference import ENTRIES, Case
from placer.calibration.validation import record
from placer.calibration.validation.record import Report
from placer.calibration.validation.reference_rows import NOT_MEASURED
from placer.calibration.validation.table import Table
from placer.calibration.validation.what_if_rows import COLUMNS, agreement, what_if_tables
from placer.decision import Decision
from placer.errors import CalibrationError, UnknownGPU
from placer.profile import Profile, load

RECORD = Path(__file__).parents[3] / "calibration" / "records" / "cpu-intel-avx512-2-core"
#: Entries that trace in milliseconds.
QUICK = {
    "matrix_vector", "surface_whole_data", "surface_data_loader", "square_product_staying", "square_product_copied",
    "conv1d_training", "gru_training", "mnist_example_training",
}  # fmt: skip
Rows = list[dict[str, str]]


@pytest.fixture(scope="module")
def profile() -> Profile:
    return load(RECORD / "reference_profile.json")


@pytest.fixture(scope="module")
def report() -> Report:
    found = record.load(RECORD / "reference.json")
    return replace(found, cells=tuple(cell for cell in found.cells if cell.network in QUICK))


def tables(report: Report, profile: Profile, *gpus: str) -> dict[str, tuple[Rows, str]]:
    """Rows by column, and the line that counts claims, by the title of the table."""
    found: dict[str, tuple[Rows, str]] = {}
    title = ""
    for item in what_if_tables(report, profile, gpus):
        if isinstance(item, Table):
            title = item.title
            found[title] = [dict(zip(COLUMNS, row, strict=True)) for row in item.rows], ""
        elif item.startswith("clear claims"):
            found[title] = found[title][0], item
    return found


@pytest.fixture(scope="module")
def usual(report: Report, profile: Profile) -> list[tuple[Rows, str]]:
    """Without a name: on the accounts' own hardware, and on a present GPU."""
    return list(tables(report, profile).values())


def test_on_the_hardware_of_its_account_every_clear_claim_of_these_is_decided_as_reported(
    usual: list[tuple[Rows, str]],
) -> None:
    rows, summary = usual[0]
    assert summary == "clear claims: 20 of 20 decided as reported, 0 called about the same, 0 decided otherwise"
    assert {row["CPU measured"] for row in rows} == {NOT_MEASURED}
    cards = {row["variant"]: row["GPU"] for row in rows}
    assert cards["100×n matrix by a vector"] == "Tesla K40m"
    assert cards["MNIST ConvNet"] == "Tesla K80"
    assert cards["Conv1d regressor"] == "Tesla K80 *"


def test_a_present_gpu_stands_beside_what_the_record_measured(usual: list[tuple[Rows, str]]) -> None:
    rows = usual[1][0]
    assert all(row["CPU measured"] != NOT_MEASURED for row in rows)
    assert {row["GPU"] for row in rows} == {"Tesla T4"}
    surface = {row["batch"]: row for row in rows if row["variant"] == "all data in one batch on the device"}
    assert [row["choice"] for row in surface.values()] == ["CPU", "CPU", "GPU"]
    assert [row["GPU repaid after"] for row in surface.values()][:2] == ["never", "never"]
    # Between two batches of which one is decided for the CPU and one for the GPU.
    assert 1_000 < int(surface["1,000"]["GPU ahead from"].replace(",", "")) < 40_000


def test_one_time_costs_count_in_a_finite_run(usual: list[tuple[Rows, str]]) -> None:
    conv = [row for row in usual[1][0] if row["variant"] == "Conv1d regressor" and row["batch"] == "512"]
    assert [row["choice"] for row in conv if row["rows"] in ("1,000", "10,000", "1,000,000")] == ["CPU", "CPU", "GPU"]
    # Beyond the context's 2.5 s: 1,000 rows are two steps an epoch.
    assert all(row["GPU repaid after"].endswith("epochs") for row in conv if row["rows"] == "1,000")


def test_each_named_gpu_has_a_table(report: Report, profile: Profile) -> None:
    cells = tuple(cell for cell in report.cells if cell.network == "square_product_staying")
    found = tables(replace(report, cells=cells), profile, "K40", "RTX 4090")
    assert [title.partition("on a ")[2] for title in found] == [
        "Tesla K40m beside it", "NVIDIA GeForce RTX 4090 beside it",
    ]  # fmt: skip


def test_what_it_cannot_price_is_refused(report: Report, profile: Profile) -> None:
    with pytest.raises(UnknownGPU, match="no GPU is called 'K9000'"):
        tables(report, profile, "K9000")
    with pytest.raises(CalibrationError, match="give --suite reference"):
        tables(replace(report, cells=()), profile, "K40")


@pytest.mark.parametrize(("claim", "device", "speedup", "confidence", "expected"), [
    (("GPU",), "cuda", 2.0, 0.99, "yes"),
    (("GPU",), "cpu", 2.0, 0.99, "no"),
    (("GPU",), "cuda", 1.05, 0.6, "unsure"),
    (("tie",), "cuda", 1.05, 0.6, "yes"),
    (("tie",), "cpu", 2.0, 0.99, "no"),
    (("CPU", "tie"), "cpu", 2.0, 0.99, "yes"),
    ((), "cpu", 2.0, 0.99, "-"),
])  # fmt: skip
def test_a_claim_holds_where_the_decision_is_the_reported_one(
    claim: tuple[str, ...], device: str, speedup: float, confidence: float, expected: str
) -> None:
    case = Case(1, None, "", claim)  # type: ignore[arg-type]
    assert agreement(case, Decision(device, 1, confidence, "", speedup=speedup)) == expected


def test_accounts_with_times_claim_what_their_times_say() -> None:
    (conv,) = (entry for entry in ENTRIES if entry.name == "conv1d_training")
    (tabnet,) = (entry for entry in ENTRIES if entry.name == "tabnet_regressor_training")
    assert [(c.claim, bool(c.doubt)) for c in tabnet.cases] == [
        (("tie",), False), (("GPU",), False), (("GPU",), False), (("GPU",), False),
    ]  # fmt: skip
    doubtful = [(c.batch, c.rows) for c in conv.cases if c.doubt]
    assert doubtful == [
        (16, 10_000), (16, 100_000), (16, 1_000_000), (512, 100_000), (1024, 100_000), (4096, 100_000),
    ]  # fmt: skip
