"""What was not calibrated is marked in every table, and each mark is explained once."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from placer.decision.decision import decide
from placer.explanation import Explanation, build
from placer.explanation.sweep import Sweep, render_sweep
from placer.pricing.prediction import Prediction


@pytest.fixture
def explanation(make_prediction: Callable[..., Prediction]) -> Explanation:
    found = {
        "cpu": make_prediction("cpu", 2e-3),
        "cuda@A": make_prediction("cuda", 1e-3, sources=("published",) * 5, provenance="published"),
        "cuda@B": make_prediction("cuda", 1e-3, sources=("data sheet",) * 5, provenance="data sheet", coverage=0.0),
    }
    return build(found, decide(found, None), {"target": "Net", "mode": "train"}, {})


def test_the_text_marks_devices_and_explains_the_marks(explanation: Explanation) -> None:
    lines = explanation.to_text(width=140).splitlines()
    heads = [line for line in lines if "cuda@A †" in line and "cuda@B ‡" in line]
    assert len(heads) == 3  # of the tables of layers, operators and parts
    rows = [line.split() for line in lines]
    assert ["numbers", "calibrated", "published", "data", "sheet"] in rows
    assert ["measured", "100%", "100%", "0%"] in rows
    assert sum(line.startswith(("† from", "‡ from")) for line in lines) == 2


def test_what_others_measured_is_no_guess(explanation: Explanation) -> None:
    for row in (*explanation.layers, *explanation.ops):
        assert set(row.guessed) <= {"cuda@B"}
    assert {row.source for row in explanation.ops} == {"data sheet"}  # the weakest of three devices
    assert not [note for note in explanation.notes if "not backed" in note]


def test_published_prices_of_a_calibrated_device_are_not_calibrated(
    make_prediction: Callable[..., Prediction],
) -> None:
    found = {"cuda": make_prediction("cuda", 1e-3, sources=("published",) + ("calibrated",) * 4, coverage=0.6)}
    explanation = build(found, decide(found, None), {"target": "Net", "mode": "train"}, {})
    assert explanation.notes == ("on cuda, 40% of the time is not backed by calibration: aten::addmm",)
    assert explanation.devices["cuda"].provenance == "calibrated"


def test_json_carries_the_provenance_and_old_json_has_none(explanation: Explanation) -> None:
    values = json.loads(explanation.to_json())
    assert [row["provenance"] for row in values["devices"].values()] == ["calibrated", "published", "data sheet"]
    assert Explanation.from_dict(values) == explanation
    for row in values["devices"].values():
        del row["provenance"]
    assert {row.provenance for row in Explanation.from_dict(values).devices.values()} == {"calibrated"}


def test_a_cpu_that_was_not_calibrated_here_is_an_estimate(make_prediction: Callable[..., Prediction]) -> None:
    found = {
        "cpu": make_prediction("cpu", 2e-3, sources=("published",) * 5, provenance="published"),
        "cuda": make_prediction("cuda", 1e-3, sources=("published",) * 5, provenance="published"),
    }
    text = str(build(found, decide(found, None), {"target": "Net", "mode": "train"}, {}))
    assert "\n§ estimated from a similar CPU's measurements, not calibrated here; run: placer calibrate\n" in text
    assert "\n† from measurements that others published of this GPU" in text
    assert "\ncpu §" in text
    assert ["numbers", "estimated", "published"] in [line.split() for line in text.splitlines()]


def test_a_sweep_marks_them_too(explanation: Explanation) -> None:
    text = render_sweep(Sweep("batch", {1: explanation, 2: explanation}), width=140)
    head = next(line for line in text.splitlines() if "faster" in line)
    assert "cuda@A †" in head
    assert "cuda@B ‡" in head
    assert "\n† from" in text
    assert "\n‡ from" in text


def test_the_page_marks_them_too(explanation: Explanation) -> None:
    pytest.importorskip("jinja2")
    pytest.importorskip("vl_convert")
    page = explanation.to_html()
    assert page.count('<th scope="col">cuda@A †</th>') == 2
    assert "<td>data sheet</td>" in page
    assert page.index("† from") < page.index("‡ from")
