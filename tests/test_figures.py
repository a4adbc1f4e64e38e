"""The figures and the picture of README.md and docs/ are those that the code as it is gives for the records."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from pathlib import Path

import figures
import picture
import pytest

from placer import profile
from placer.calibration.validation import sharing
from placer.calibration.validation.record import Cell, Report

#: A machine with a GPU whose networks are soon traced, and a CPU with one thread and with two.
SOME = (figures.GPUS[-1].calibrated, figures.THREADS)
NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")


@pytest.mark.parametrize(
    "replays",
    [
        pytest.param(SOME, marks=pytest.mark.timeout(600), id="some"),
        pytest.param(figures.ALL, marks=[pytest.mark.soak, pytest.mark.timeout(3600)], id="all"),
    ],
)
def test_the_figures_of_records_are_those_of_the_code_as_it_is(
    replays: tuple[figures.Replay, ...], fits_are_kept: None
) -> None:
    """The pages are as docs/figures.py would write them."""
    for page, content in figures.rewritten(figures.figures(figures.predicted(replays))).items():
        changed = figures.changed_lines(page.read_text(encoding="utf-8"), content)
        told = "\n".join(f"{was}\nis now\n{now}" for was, now in changed)
        assert not changed, f"{page} is stale, run docs/figures.py:\n{told}"


def test_every_figure_of_a_record_has_one_place_on_a_page() -> None:
    """With what was predicted on the day: nothing is predicted anew."""
    then = {replay: [replace(cell, parameters=1) for cell in replay.report().cells] for replay in figures.ALL}
    written = list(figures.figures(then))
    pages = {figures.README, figures.ACCURACY, figures.USUAL_ERRORS, figures.REFERENCE}
    assert set(figures.rewritten(written)) == pages
    assert len({figure.pattern for figure in written}) == len(written)


def numbers(text: str) -> list[float]:
    return [float(number.replace(",", "")) for number in NUMBER.findall(text)]


def test_the_picture_is_what_the_command_draws() -> None:
    drawn = picture.draw(picture.swept())
    committed = (figures.ROOT / "docs" / "picture.svg").read_text(encoding="utf-8")
    assert NUMBER.sub("0", drawn) == NUMBER.sub("0", committed), "run docs/regenerate.py"
    assert numbers(drawn) == pytest.approx(numbers(committed), rel=0.02, abs=1.0), "run docs/regenerate.py"


def test_a_shared_record_is_a_row_of_the_accuracy_page(tmp_path: Path) -> None:
    path, known = tmp_path / "somebody.json", profile.load("intel-xeon-avx512-2-core")
    cell = Cell("lstm", "recurrent", 32, "infer", "cpu", 2, predicted=1e-3, measured=1e-3, visits=(1e-3, 1.1e-3),
                repeatability=1.1)  # fmt: skip
    report = Report("2026-11-29T10:00:00+00:00", known.fingerprint, "", (cell,))
    sharing.share(report, known, path, io.StringIO())
    replay = figures.Replay(str(path), "")
    table = figures.shared_records([replay], figures.predicted([replay]))
    row = rf"\| `{re.escape(str(path))}` \| Intel.*, 2 threads \| 0.1.0, .* \| its calibration of \d+ s \| 1 \| \d+ /"
    assert re.search(row, table.written(figures.ACCURACY.read_text(encoding="utf-8")))
