"""Which random networks are drawn."""

from __future__ import annotations

import statistics
from random import Random

import pytest
from torch import nn

from placer.calibration.benchmarks import networks
from placer.calibration.benchmarks.functions import LOSSES
from placer.calibration.benchmarks.networks import propose
from placer.calibration.benchmarks.probe import Limit

#: Some 50 ms of a small CPU: about what a default calibration allows.
LIMIT = Limit(flops=1e9, bytes=1e8)


def test_the_larger_of_networks_that_fit_is_taken() -> None:
    """Most that are drawn are far smaller than what they may be: then only small ones would ever be measured."""
    def parameters(fitting: int) -> float:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(networks, "FITTING", fitting)
            drawn = [propose(Random(seed), LIMIT) for seed in range(40)]
        return statistics.median(sum(p.numel() for p in probe.build().parameters()) for probe in drawn)

    assert parameters(3) > parameters(1)


def test_networks_are_drawn_with_all_losses_and_with_none() -> None:
    names: set[str] = set()
    for seed in range(200):
        probe = propose(Random(seed), LIMIT)
        names.add(probe.name.partition(" ")[2].partition(" ")[2])
        assert not probe.loss or probe.mode == "train"
        if seed > 40 and names == {"", *LOSSES}:
            return
    assert names == {"", *LOSSES}


def test_a_network_of_one_layer_is_that_layer() -> None:
    drawn = [propose(Random(seed), LIMIT) for seed in range(60)]
    sequences: dict[str, set[bool]] = {}
    for probe in drawn:
        sequences.setdefault(probe.name.split()[0], set()).add(isinstance(probe.build(), nn.Sequential))
    assert sequences["cnn"] == sequences["transformer"] == {True}
    # A solver is one module, which calls another again and again.
    assert sequences["single"] == sequences["solver"] == {False}
