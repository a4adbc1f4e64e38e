"""Steps of reference systems, priced on a GPU of the catalog over batch sizes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from placer.calibration.suite.reference import ENTRIES
from placer.calibration.validation.what_if_rows import Hardware, Steps, ahead_from
from placer.errors import PlacerError
from placer.profile import load

ENTRY = {entry.name: entry for entry in ENTRIES}


@pytest.fixture(scope="module")
def hardware() -> Hardware:
    return Hardware(load("intel-xeon-avx512-2-core"), 2, "Tesla T4")


def test_a_sweep_finds_where_every_size_around_agrees(hardware: Hardware) -> None:
    steps = Steps(ENTRY["surface_whole_data"])
    swept = steps.sweep(hardware)
    turn = swept.crossovers()[-1][0]
    assert ahead_from(swept) == f"{swept.turn(turn):,.0f}"
    for size, ahead in ((turn // 2, "cpu"), (turn, "cuda"), (4 * turn, "cuda"), (turn // 8, "cpu")):
        found = steps.price(size, hardware)
        assert min(found, key=lambda device: found[device].step_seconds) == ahead, size
    assert len(swept.rows) < 8  # of 17


def test_a_size_that_cannot_be_traced_is_left_out(hardware: Hardware) -> None:
    entry = ENTRY["square_product_staying"]

    def example(size: int) -> Any:
        if size < 4:
            raise_refusal()
        return entry.example(size)

    swept = Steps(replace(entry, example=example)).sweep(hardware)
    assert min(swept.rows) == 4


def raise_refusal() -> None:
    raise PlacerError("too few rows")


def test_a_step_is_traced_once(hardware: Hardware) -> None:
    entry = ENTRY["square_product_staying"]
    made: list[int] = []

    def example(size: int) -> Any:
        made.append(size)
        return entry.example(size)

    steps = Steps(replace(entry, example=example))
    first, again = (steps.price(64, hardware) for _ in range(2))
    assert made == [64]
    assert first["cuda"].step_seconds == again["cuda"].step_seconds
    assert first["cuda"].one_time_seconds > 2.0
    assert first["cpu"].one_time_seconds == 0.0
