"""Jobs beside the simulated accelerator: parts are really moved, all of them or none."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from on_simulated.two_devices import devices_of, large
from simulated.device import SimulatedDevice
from torch import nn

import placer
from placer import Job, Part


def test_a_job_is_moved_as_a_whole(device: SimulatedDevice, profile_file: Path) -> None:
    first, second = large(), large()
    found = Job(
        [
            Part("one", first, (512, 256), mode="train", optimizer=torch.optim.Adam(first.parameters())),
            Part("two", second, (512, 256), mode="train", count=2),
        ]
    )
    placement = placer.choose(found, profile=profile_file)
    assert placement.decision.device == "sim"
    assert devices_of(first) == devices_of(second) == {"sim"}
    with pytest.raises(placer.PlacerError, match=r"placement.parts\[name\].step"):
        placement.step()


def test_a_move_that_is_refused_leaves_every_model_where_it_was(
    device: SimulatedDevice, profile_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = large(), large()
    found = Job([Part("one", first, (512, 256)), Part("two", second, (512, 256))])
    to = nn.Module.to

    def refuse(self: nn.Module, *args: object, **kwargs: object) -> nn.Module:
        if self is second:
            raise RuntimeError("the device is gone")
        return to(self, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(nn.Module, "to", refuse)
    with pytest.warns(placer.PlacerWarning, match="not placed as predicted"):
        placement = placer.choose(found, profile=profile_file)
    assert placement.decision.device == "cpu"
    assert devices_of(first) == devices_of(second) == {"cpu"}
