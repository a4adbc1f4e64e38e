from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import pytest

import placer
from placer import explanation
from placer.decision.decision import decide
from placer.errors import PlacerError
from placer.explanation import Explanation, build
from placer.pricing.prediction import Prediction

WORKLOAD = {
    "target": "Net", "mode": "train", "inputs": ["32×84 float32"], "optimizer": "adam", "loss": None, "steps": None,
    "data": "host", "autocast": None, "parameters": 1234, "op_calls": 5,
}  # fmt: skip
MACHINE = {"cpu": "Some CPU", "cores": 2, "torch": "2.13.0", "calibrated": "2026-01-02"}

Make = Callable[..., Prediction]


@pytest.fixture
def two(make_prediction: Make) -> Explanation:
    predictions = {
        "cpu": make_prediction("cpu", 2e-3, compute=1.5e-3),
        "cuda": make_prediction(
            "cuda", 1e-3, compute=0.2e-3, one_time_seconds=1.5, sources=("calibrated",) * 4 + ("floor",), coverage=0.8
        ),
    }
    return build(predictions, decide(predictions, None), WORKLOAD, MACHINE, ("a note",))


def test_json_is_schema_1(two: Explanation) -> None:
    values = json.loads(two.to_json())
    documented = [
        "schema",
        "workload",
        "choice",
        "confidence",
        "reason",
        "break_even_steps",
        "devices",
        "layers",
        "ops",
    ]
    assert list(values)[: len(documented)] == documented
    assert values["schema"] == 1
    assert (values["choice"], values["verdict"], values["break_even_steps"]) == ("cuda", "cuda", 1501)
    assert set(values["devices"]["cuda"]) == {
        "step_seconds", "low", "high", "one_time_seconds", "total_seconds", "components", "peak_memory_bytes", "fits",
        "coverage", "provenance", "available_memory_bytes", "one_time", "bounded_by", "watts",
        "dollars_per_hour", "device", "threads",
    }  # fmt: skip
    assert all(set(row) == {"name", "phase", "devices", "guessed"} for row in values["layers"])
    assert all(set(row) == {"op", "family", "count", "devices", "source", "guessed"} for row in values["ops"])


def test_layers_and_ops_add_up_to_the_compute_of_each_device(two: Explanation) -> None:
    for name, device in two.devices.items():
        compute = device.components["compute"]
        assert math.fsum(row.devices[name] for row in two.layers) == pytest.approx(compute, rel=1e-12)
        assert math.fsum(row.devices[name] for row in two.ops) == pytest.approx(compute, rel=1e-12)
        assert math.fsum(row.devices[name] for row in two.folded(1).layers) == pytest.approx(compute, rel=1e-12)


def test_layers_stand_in_the_order_they_run_with_their_phases_together(two: Explanation) -> None:
    assert [(row.name, row.phase) for row in two.layers] == [
        ("block.first", "forward"),
        ("block.first", "backward"),
        ("block", "forward"),
        ("last", "forward"),
        ("last", "optimizer"),
    ]
    assert {row.name for row in two.folded(1).layers} == {"block", "last"}


def test_ops_are_counted_once_for_all_devices_and_keep_the_weakest_source(two: Explanation) -> None:
    rows = {row.op: row for row in two.ops}
    assert rows["aten::addmm"].count == 2
    assert rows["aten::addmm"].devices == {"cpu": pytest.approx(0.75e-3), "cuda": pytest.approx(0.1e-3)}
    assert rows["optimizer::Adam"].source == "floor"
    assert rows["aten::mm"].source == "calibrated"


def test_what_is_not_calibrated_is_noted_by_name(two: Explanation) -> None:
    assert two.notes == ("a note", "on cuda, 20% of the time is not backed by calibration: optimizer::Adam")


def test_notes_of_the_trace_are_told_once(make_prediction: Make) -> None:
    import dataclasses

    found = {name: make_prediction(name) for name in ("cpu", "cuda")}
    for name, p in found.items():
        trace = dataclasses.replace(p.priced.trace, notes=("a guess",))
        found[name] = dataclasses.replace(p, priced=dataclasses.replace(p.priced, trace=trace))
    assert build(found, decide(found, None), WORKLOAD, MACHINE).notes == ("a guess",)


def test_round_trip(two: Explanation) -> None:
    again = Explanation.from_dict(json.loads(two.to_json()))
    assert again == two
    assert str(again) == str(two)


def test_an_entry_of_an_earlier_version_is_read(two: Explanation) -> None:
    values = two.to_dict()
    assert values.pop("bottlenecks")
    assert values.pop("verdict")
    for row in values["devices"].values():
        del row["one_time"], row["bounded_by"]
    read = Explanation.from_dict(values)
    assert read.bottlenecks == ()
    assert "bounded" not in str(read)
    assert "The first step on cuda takes 1.50 s, later ones 1.00 ms" in str(read)


@pytest.mark.parametrize("change", [{"schema": 2}, {"devices": {"cpu": {}}}, {"devices": 3}, {"choice": ...}])
def test_another_schema_or_a_torn_entry_is_refused(two: Explanation, change: dict[str, Any]) -> None:
    values = {**two.to_dict(), **change}
    if values["choice"] is ...:
        del values["choice"]
    with pytest.raises(PlacerError):
        Explanation.from_dict(values)


@pytest.mark.parametrize("name", explanation.__all__)
def test_the_front_page_has_what_it_names(name: str) -> None:
    assert getattr(explanation, name) is not None


def test_the_front_page_has_nothing_else() -> None:
    with pytest.raises(AttributeError, match="no attribute 'render'"):
        _ = explanation.render  # type: ignore[attr-defined]


def test_the_public_name_is_this_class() -> None:
    assert placer.Explanation is Explanation
