from __future__ import annotations

import importlib

import pytest

from placer.calibration.gpu_run.child import WORK
from placer.calibration.gpu_run.parts import PARTS, SECONDS, STARTING, seconds_of


@pytest.mark.parametrize("part", [part.name for part in PARTS])
def test_behind_every_part_is_a_function(part: str) -> None:
    module, function = WORK[part].split(".")
    assert callable(getattr(importlib.import_module(f"placer.calibration.gpu_run.{module}"), function))


def test_a_run_of_the_usual_length_gives_each_part_its_seconds() -> None:
    left = SECONDS
    for position, part in enumerate(PARTS):
        seconds = seconds_of(position, left)
        assert seconds == pytest.approx(part.seconds, rel=0.05)
        left -= seconds + STARTING
    assert left == pytest.approx(0.0)


def test_what_a_part_leaves_goes_to_those_that_come() -> None:
    usual, more = seconds_of(3, 200.0), seconds_of(3, 300.0)
    assert more > usual
    last = len(PARTS) - 1
    assert seconds_of(last, 60.0) == 60.0 - STARTING
    assert seconds_of(0, 10.0) < 0.0
