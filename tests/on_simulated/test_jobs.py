"""Jobs beside the simulated accelerator: parts are really moved, together and apart."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from simulated.device import Device
from torch import nn

import placer
from placer import Job, Part


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))


def small() -> nn.Module:
    return nn.Sequential(nn.Linear(256, 64), nn.Tanh(), nn.Linear(64, 10))


def job(model: nn.Module, optimizer: torch.optim.Optimizer, *, apart: bool) -> Job:
    return Job([
        Part("acting", model, (1, 256), count=4000, mode="infer", optimizer=optimizer),
        Part("learning", model, (16384, 256), mode="train", optimizer=optimizer),
    ], apart=apart)  # fmt: skip


def places(model: nn.Module) -> set[str]:
    return {p.device.type for p in model.parameters()}


def test_a_job_is_moved_as_a_whole(device: Device, profile_file: Path) -> None:
    first, second = net(), net()
    found = Job([
        Part("one", first, (512, 256), mode="train", optimizer=torch.optim.Adam(first.parameters())),
        Part("two", second, (512, 256), mode="train", count=2),
    ])  # fmt: skip
    placement = placer.choose(found, profile=profile_file)
    assert placement.decision.device == "sim"
    assert places(first) == places(second) == {"sim"}


def test_parts_apart_run_copies_of_a_common_model(device: Device, profile_file: Path) -> None:
    model = small()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    placement = placer.choose(job(model, optimizer, apart=True), profile=profile_file)
    assert isinstance(placement, placer.JobPlacement)
    assert placement.apart is not None
    chosen = {name: part.decision.device for name, part in placement.parts.items()}
    assert chosen == {"acting": "cpu", "learning": "sim"}
    acting = placement.models["acting"]
    assert placement.models["learning"] is model
    assert (places(acting), places(model)) == ({"cpu"}, {"sim"})
    loss = model(placement.parts["learning"].to(torch.randn(64, 256))).square().mean()
    loss.backward()
    optimizer.step()
    learnt = model[0].weight.detach().cpu()  # type: ignore[index]
    assert not torch.allclose(acting[0].weight, learnt)  # type: ignore[index]
    placement.refresh()
    assert torch.allclose(acting[0].weight, learnt)  # type: ignore[index]


def test_without_leave_all_parts_stay_together(device: Device, profile_file: Path) -> None:
    model = small()
    placement = placer.choose(job(model, torch.optim.Adam(model.parameters()), apart=False), profile=profile_file)
    assert len({part.device for part in placement.parts.values()}) == 1  # type: ignore[attr-defined]
    assert placement.explain().apart is not None


def test_a_move_that_is_refused_leaves_every_model_where_it_was(
    device: Device, profile_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = net(), net()
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
    assert places(first) == places(second) == {"cpu"}


def test_a_refused_move_apart_leaves_every_model_where_it_was(
    device: Device, profile_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = small()
    optimizer = torch.optim.Adam(model.parameters())

    def refuse(self: nn.Module, *args: object, **kwargs: object) -> nn.Module:
        raise RuntimeError("the device is gone")

    monkeypatch.setattr(nn.Module, "to", refuse)
    with pytest.warns(placer.PlacerWarning, match="not placed as predicted: cpu"):
        placement = placer.choose(job(model, optimizer, apart=True), profile=profile_file)
    assert isinstance(placement, placer.JobPlacement)
    assert (placement.decision.device, placement.models["acting"]) == ("cpu", model)
    assert placement.explain().parts
    assert places(model) == {"cpu"}


def test_one_optimizer_of_models_apart_goes_on(device: Device, profile_file: Path) -> None:
    acting, learning = small(), net()
    optimizer = torch.optim.Adam([*acting.parameters(), *learning.parameters()])
    for part in (acting, learning):
        part(torch.randn(2, 256)).sum().backward()
    optimizer.step()
    found = Job([
        Part("small", acting, (1, 256), count=400, mode="infer", optimizer=optimizer),
        Part("large", learning, (4096, 256), count=4, mode="train", optimizer=optimizer),
    ], apart=True)  # fmt: skip
    placement = placer.choose(found, profile=profile_file)
    assert (places(acting), places(learning)) == ({"cpu"}, {"sim"})
    acting(torch.randn(2, 256)).sum().backward()
    learning(placement.parts["large"].to(torch.randn(2, 256))).sum().backward()  # type: ignore[attr-defined]
    optimizer.step()


def test_a_copy_is_in_the_mode_of_its_part(device: Device, profile_file: Path) -> None:
    model = small().train()
    placement = placer.choose(job(model, torch.optim.Adam(model.parameters()), apart=True), profile=profile_file)
    assert isinstance(placement, placer.JobPlacement)
    assert not placement.models["acting"].training
    assert model.training
    with pytest.raises(placer.PlacerError, match=r"placement.parts\[name\].step"):
        placement.step()
