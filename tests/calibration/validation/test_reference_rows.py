from __future__ import annotations

import io
from dataclasses import replace

import pytest

from placer.calibration.validation.record import Cell, Report
from placer.calibration.validation.reference_rows import COLUMNS, reference_rows
from placer.calibration.validation.report import render


def cell(
    network: str, batch: int, device: str, predicted: float | None, measured: float | None, once: float = 0.0
) -> Cell:
    return Cell(
        network, "mlp", batch, "train", device, 2, predicted=predicted, measured=measured, one_time_seconds=once,
        prediction_error=None if predicted else "no", error=None if measured else "no",
    )  # fmt: skip


def row(cells: list[Cell], rows: str) -> dict[str, str]:
    """The only row of the only table for a data set of this size, by column."""
    (table,) = reference_rows(cells).values()
    (found,) = [dict(zip(COLUMNS, line, strict=True)) for line in table if line[3] == rows]
    return found


def surface(gpu_predicted: float, gpu_measured: float | None, once: float = 1.0) -> dict[str, str]:
    cells = [
        cell("surface_whole_data", 1000, "cpu", 2e-3, 2e-3),
        cell("surface_whole_data", 1000, "cuda", gpu_predicted, gpu_measured, once),
    ]
    return row(cells, "1,000")


def test_a_row_says_all_there_is_to_say() -> None:
    assert surface(1e-3, 1.1e-3) == {
        "system": "surface regression", "variant": "all data in one batch on the device", "batch": "1,000",
        "rows": "1,000", "CPU predicted": "2.00 ms", "CPU measured": "2.00 ms", "GPU predicted": "1.00 ms",
        "GPU measured": "1.10 ms", "choice": "cuda", "right": "right", "GPU repaid after": "1,001 epochs",
        "reported": "no gain on the GPU",
    }  # fmt: skip


@pytest.mark.parametrize(("predicted", "measured", "choice", "verdict"), [
    (1e-3, 3e-3, "cuda", "wrong"),
    (3e-3, 1e-3, "cpu", "wrong"),
    (3e-3, 1.4e-3, "cpu", "right"),  # 2,000 steps and a second to begin with: 3.8 s against 4 s is a tie
    (3e-3, 3e-3, "cpu", "right"),
    (1e-3, None, "cuda", "-"),
])  # fmt: skip
def test_the_choice_is_judged_where_both_sides_were_measured(
    predicted: float, measured: float | None, choice: str, verdict: str
) -> None:
    found = surface(predicted, measured)
    assert (found["choice"], found["right"]) == (choice, verdict)


def test_without_a_gpu_nothing_is_judged() -> None:
    found = row([cell("surface_whole_data", 1000, "cpu", 2e-3, 2e-3)], "1,000")
    assert [found[name] for name in ("GPU predicted", "GPU measured", "choice", "right", "GPU repaid after")] == [
        "not predicted", "not measured", "cpu", "-", "-",
    ]  # fmt: skip


def test_how_much_data_there_is_decides() -> None:
    cells = [
        cell("conv1d_training", 512, "cpu", 4e-3, 4e-3),
        cell("conv1d_training", 512, "cuda", 2e-3, 2e-3, once=2.0),
    ]
    chosen = {rows: row(cells, rows) for rows in ("1,000", "10,000", "100,000", "1,000,000")}
    assert [found["choice"] for found in chosen.values()] == ["cpu", "cpu", "cuda", "cuda"]
    assert all(found["right"] == "right" for found in chosen.values())
    # 1,001 steps, of which one epoch takes 2, 20, 196 and 1,954.
    assert [found["GPU repaid after"] for found in chosen.values()] == [
        "501 epochs", "51 epochs", "6 epochs", "1 epoch",
    ]  # fmt: skip


def test_a_run_without_a_data_set_is_a_long_one() -> None:
    cells = [cell("lorenz_dopri5", 1, "cpu", 0.5, 0.5), cell("lorenz_dopri5", 1, "cuda", 0.25, 0.75, once=100.0)]
    found = row(cells, "-")
    assert (found["choice"], found["right"], found["GPU repaid after"]) == ("cuda", "wrong", "401 steps")


def test_a_gpu_that_is_no_faster_never_pays() -> None:
    assert surface(2e-3, 2e-3)["GPU repaid after"] == "never"


def test_no_choice_is_claimed_where_a_device_is_without_a_prediction() -> None:
    cells = [
        cell("surface_whole_data", 1000, "cpu", 2e-3, 2e-3),
        cell("surface_whole_data", 1000, "cuda", None, 1e-3),
    ]
    found = row(cells, "1,000")
    assert (found["choice"], found["right"], found["GPU predicted"]) == ("-", "-", "not predicted")


def test_each_number_of_threads_and_each_accelerator_has_a_table() -> None:
    cpu, gpu = cell("lorenz_dopri5", 1, "cpu", 1.0, 1.0), cell("lorenz_dopri5", 1, "cuda", 1.0, 1.0)
    assert list(reference_rows([cpu, gpu, replace(cpu, threads=1)])) == [
        "Reference systems on the CPU with 2 threads and cuda", "Reference systems on the CPU with 1 thread and cuda",
    ]  # fmt: skip
    assert list(reference_rows([cpu])) == ["Reference systems on the CPU with 2 threads"]
    assert reference_rows([replace(cpu, network="lstm")]) == {}


def test_the_report_shows_the_table() -> None:
    stream = io.StringIO()
    render(Report("", {}, "hand-made", (cell("square_product_copied", 200, "cpu", 1e-4, 1e-4),)), stream)
    lines = stream.getvalue().splitlines()
    title = lines.index("Reference systems on the CPU with 2 threads")
    assert lines[title + 1].split() == " ".join(COLUMNS).split()
    assert lines[title + 2].startswith("moving data  n×n product, all copied    200")
    assert lines[title + 2].endswith("GPU and CPU about equal")
