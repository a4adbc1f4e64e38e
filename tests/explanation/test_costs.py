"""Money and energy in the text, the page and the JSON of an explanation."""

from __future__ import annotations

import json
from typing import Any

import pytest
from torch import nn

import placer
from placer import Explanation


def priced(steps: int | None = None, **options: Any) -> Explanation:
    net = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
    return placer.explain(
        net,
        (256, 512),
        mode="train",
        steps=steps,
        profile="amd-epyc-2-core",
        what_if="A100",
        options=placer.Options(**options),
    )


def test_the_cheaper_device_is_chosen_and_the_trade_is_one_line() -> None:
    found = priced(objective="cost", price={"cpu": 0.05, "cuda": 4.0})
    text = found.to_text(full=True)
    assert text.startswith("cpu: ")
    assert "of what cuda@A100" in text.splitlines()[0]
    row = next(line for line in text.splitlines() if "as fast for" in line and line.lstrip().startswith("cuda"))
    assert row.rstrip().endswith("× the money")
    values = json.loads(found.to_json())
    assert (values["objective"], values["devices"]["cpu"]["dollars_per_hour"]) == ("cost", 0.05)
    assert Explanation.from_dict(values) == found
    pytest.importorskip("jinja2")
    pytest.importorskip("vl_convert")
    page = found.to_html()
    assert "What a million steps cost" in page
    assert "× the money</td>" in page
    assert "Energy (~) is an estimate" in page


def test_energy_is_marked_as_an_estimate_and_watts_may_be_given() -> None:
    found = priced(objective="energy", steps=1000)
    assert "energy ~" in found.to_text(full=True)
    assert "Energy (~) is an estimate" in found.to_text(full=True)
    assert all(row.watts for row in found.devices.values())
    told = priced(objective="energy", watts={"cpu": 1.0, "cuda": 1000.0})
    assert told.decision.device == "cpu"
    assert [row.watts for row in told.devices.values()] == [1.0, 1000.0]


def test_a_device_without_a_price_is_named() -> None:
    with pytest.raises(placer.PlacerError, match="no price is given for cuda@A100"):
        priced(objective="cost", price={"cpu": 0.05})
