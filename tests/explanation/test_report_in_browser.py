"""The report as a person meets it: opened from the disk in a real browser, with no network."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import chromium
import pytest
import torch

from placer import profile
from placer.api import explain_workload
from placer.calibration.suite import entries
from placer.decision import with_batch
from placer.explanation import Explanation
from placer.explanation.page import render
from placer.explanation.sweep import Sweep
from placer.profile.profile import Profile
from placer.workload import make_workload

RECORD = Path(__file__).resolve().parents[2] / "calibration" / "records" / "cpu-2-core" / "profile.json"

pytestmark = pytest.mark.skipif(chromium.PROGRAM is None, reason="there is no chromium")


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[chromium.Page]:
    with chromium.browser(tmp_path_factory.mktemp("chromium")) as opened:
        yield opened


@pytest.fixture
def lab(handmade_profile: Profile) -> Profile:
    """The recorded CPU beside a hand-made accelerator."""
    record = profile.load(RECORD, samples=False)
    return dataclasses.replace(record, fits=(*record.fits, handmade_profile.fits[1]))


def report(lab: Profile, name: str, batch: int) -> tuple[Explanation, str]:
    pytest.importorskip("jinja2")
    pytest.importorskip("vl_convert")
    entry = next(entry for entry in entries("full") if entry.name == name)
    if missing := entry.missing():
        pytest.skip(f"needs {missing[0]}")
    with torch.device("meta"):
        model = entry.build()
    workload = make_workload(model, example=entry.example(batch), optimizer=entry.optimizer, loss=entry.loss)
    rows = {
        size: explain_workload(with_batch(workload, size), profile=lab, advice=size == batch)
        for size in (batch, batch * 4)
    }
    return rows[batch], render(rows[batch], Sweep("batch", rows))


@pytest.mark.parametrize(("name", "batch"), [("resnet50", 1), ("bert_base", 1), ("conv1d_regressor", 512)])
def test_the_report_opens_answers_and_unfolds(
    page: chromium.Page, lab: Profile, tmp_path: Path, name: str, batch: int
) -> None:
    explanation, text = report(lab, name, batch)
    assert len(text.encode()) < 1_000_000
    file = tmp_path / "report.html"
    file.write_text(text, encoding="utf-8")
    page.problems.clear()
    page.open(file)

    verdict = page.evaluate("document.getElementById('verdict').textContent")
    assert verdict.startswith(f"{explanation.decision.device}: ")

    # A layer unfolds: what is in it gets a height.
    folded = "document.querySelectorAll('details.layer:not([open]) > summary')"
    if page.evaluate(f"{folded}.length"):
        page.evaluate(f"window.opened = {folded}[0].parentElement; opened.firstElementChild.click()")
        assert page.evaluate("opened.open && opened.lastElementChild.getBoundingClientRect().height > 0")

    # Zooming by keyboard: down to the first layer, Enter, and it is as wide as the icicle; Escape goes back.
    page.evaluate("document.querySelector('.icicle .cell').focus()")
    page.press("ArrowDown")
    assert page.evaluate("document.activeElement.getAttribute('aria-level')") == "2"
    width = "document.activeElement.getBoundingClientRect().width / document.activeElement.parentElement.clientWidth"
    page.evaluate("document.querySelectorAll('.cell').forEach(cell => { cell.style.transition = 'none'; })")
    before = page.evaluate(width)
    page.press("Enter")
    assert page.evaluate(width) == pytest.approx(1.0, abs=0.01)
    assert page.evaluate("document.getElementById('zoomed').textContent").strip()
    page.press("Escape")
    assert page.evaluate(width) == pytest.approx(before, abs=0.01)

    # Every section is there, every plot is drawn, nothing is wider than the page, and nothing was complained about.
    assert page.evaluate("document.querySelectorAll('.plot svg').length") >= 4
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.problems == []


def test_light_and_dark_differ_in_paper_and_ink(page: chromium.Page, lab: Profile, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    file.write_text(report(lab, "conv1d_regressor", 16)[1], encoding="utf-8")
    colours = []
    for dark in (False, True):
        page.open(file, dark=dark)
        style = "getComputedStyle(document.body)"
        colours.append((page.evaluate(f"{style}.backgroundColor"), page.evaluate(f"{style}.color")))
    assert colours[0][0] == "rgb(255, 255, 255)"
    assert len({colour for pair in colours for colour in pair}) == 4


def test_a_narrow_window_needs_no_sideways_scrolling(page: chromium.Page, lab: Profile, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    explanation, _ = report(lab, "conv1d_regressor", 16)
    far = "cuda@somebody-elses-server"
    devices = {name.replace("cuda", far): row for name, row in explanation.devices.items()}
    file.write_text(render(dataclasses.replace(explanation, devices=devices)), encoding="utf-8")
    page.open(file, width=420)
    assert page.evaluate("document.documentElement.scrollWidth") <= 420
    # Plots stay large enough to be read: they scroll in themselves.
    assert page.evaluate("document.querySelector('.plot svg').getBoundingClientRect().width") > 500


def test_printing_unfolds_everything_and_leaves_the_page_as_it_was(
    page: chromium.Page, lab: Profile, tmp_path: Path
) -> None:
    file = tmp_path / "report.html"
    file.write_text(report(lab, "conv1d_regressor", 16)[1], encoding="utf-8")
    page.open(file)
    folded = "document.querySelectorAll('details:not([open])').length"
    before = page.evaluate(folded)
    assert before
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate(folded) == 0
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.evaluate(folded) == before
