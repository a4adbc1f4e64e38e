"""Layers around other layers."""

from __future__ import annotations

from random import Random

import torch
from torch import nn

from placer.calibration.benchmarks.layers import InParts
from placer.calibration.benchmarks.networks import propose
from placer.calibration.benchmarks.probe import Apply, Limit

#: Some 50 ms of a small CPU: about what a default calibration allows.
LIMIT = Limit(flops=1e9, bytes=1e8)


def test_parts_of_a_batch_are_put_together_again() -> None:
    rows = torch.randn(7, 3)
    assert torch.equal(InParts(nn.Identity(), 3)(rows), rows)
    lengths = InParts(Apply(lambda part: torch.tensor([len(part)])), 3)(rows)
    assert lengths.tolist() == [3, 2, 2]  # never one row beside larger parts: it has no variance to normalize by
    drawn = [propose(Random(seed), LIMIT).build() for seed in range(60)]
    assert any(isinstance(module, InParts) for built in drawn for module in built.modules())
