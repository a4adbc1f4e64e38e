"""The figures of README.md and docs/ that rest on records are those that the code as it is gives."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import docs_scripts
import pytest
from kept_fits import fits_are_kept

FIGURES = docs_scripts.load("figures")
#: A machine with a GPU whose networks are soon traced, and a CPU with one thread and with two.
SOME = (FIGURES.GPUS[-1].calibrated, FIGURES.THREADS)


@pytest.fixture(scope="module", autouse=True)
def _fits(pytestconfig: pytest.Config) -> Iterator[None]:
    with fits_are_kept(pytestconfig):
        yield


def check(replays: tuple[object, ...]) -> None:
    """The pages are as docs/figures.py would write them."""
    for page, content in FIGURES.rewritten(FIGURES.figures(FIGURES.predicted(replays))).items():
        changed = FIGURES.changed_lines(page.read_text(encoding="utf-8"), content)
        told = "\n".join(f"{was}\nis now\n{now}" for was, now in changed)
        assert not changed, f"{page} is stale, run docs/figures.py:\n{told}"


@pytest.mark.timeout(600)
def test_the_figures_of_some_records_are_those_of_the_code_as_it_is() -> None:
    check(SOME)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_the_figures_of_all_records_are_those_of_the_code_as_it_is() -> None:
    check(FIGURES.ALL)


def test_every_figure_of_a_record_has_one_place_on_a_page() -> None:
    """With what was predicted on the day: nothing is predicted anew."""
    then = {replay: [replace(cell, parameters=1) for cell in replay.report().cells] for replay in FIGURES.ALL}
    figures = list(FIGURES.figures(then))
    assert set(FIGURES.rewritten(figures)) == {
        FIGURES.README,
        FIGURES.ACCURACY,
        FIGURES.USUAL_ERRORS,
        FIGURES.REFERENCE,
    }
    assert len({figure.pattern for figure in figures}) == len(figures)
