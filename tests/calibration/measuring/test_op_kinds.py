"""There is a typical op of every kind of the table, and each runs and is traced."""

from __future__ import annotations

import torch

from placer.calibration.measuring.op_kinds import PROBES
from placer.pricing import op_lines


def test_every_kind_has_a_probe_but_what_only_waits() -> None:
    assert set(PROBES) == set(op_lines()) - {"waits"}


def test_every_probe_runs() -> None:
    for function, shapes in PROBES.values():
        function(*(torch.randn(shape) for shape in shapes))
