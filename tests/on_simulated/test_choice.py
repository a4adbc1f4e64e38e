"""Looking, choosing, moving and training beside the simulated accelerator."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from on_simulated.two_devices import devices_of, large
from simulated.device import SimulatedDevice
from simulated.spec import SPEC
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import placer
from placer import machine
from placer.cli import main
from placer.machine import devices, identity
from placer.profile.profile import Device, Profile


def small() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))


def test_looking_creates_no_context(device: SimulatedDevice) -> None:
    assert machine.accelerators() == ("sim",)
    assert machine.available_devices() == ("cpu", "sim")
    assert machine.fingerprint()["accelerators"][0]["device"] == "sim"
    assert not machine.has_context("sim")
    assert machine.known_free_memory("sim") is None
    assert machine.utilization("sim") is None
    for arguments in (["doctor"], ["doctor", "--format", "json"]):
        shown = CliRunner().invoke(main, arguments, prog_name="placer")
        assert shown.exit_code == 0, shown.output
    assert {row["device"]: row["knowledge"] for row in json.loads(shown.stdout)["devices"]} == {
        "cpu": "published",
        "sim": "convention",
    }
    assert device.contexts == 0
    free, total = machine.memory("sim")  # only a context can tell
    assert 0 < free <= total == SPEC.memory
    assert device.contexts == 1
    assert machine.known_free_memory("sim") == free
    with pytest.raises(ValueError, match="no device 'sim:3' here; there is cpu, sim"):
        machine.memory("sim:3")


def test_choosing_the_cpu_creates_no_context(device: SimulatedDevice, profile_file: Path) -> None:
    model = small()
    placement = placer.choose(model, (4, 4), mode="train", profile=profile_file)
    assert placement.decision.device == "cpu"
    assert set(placement.predictions) == {"cpu", "sim"}
    assert devices_of(model) == {"cpu"}
    assert placer.explain(model, (4, 4), mode="train", profile=profile_file).devices
    loader = DataLoader(TensorDataset(torch.ones(4, 4)), batch_size=2)
    assert placement.batches(loader) is loader
    assert device.contexts == 0


def test_what_pays_is_moved_and_trains_there(device: SimulatedDevice, profile_file: Path) -> None:
    model = large()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    placement = placer.choose(model, (512, 256), mode="train", optimizer=optimizer, profile=profile_file)
    assert placement.decision.device == "sim"
    assert placement.confidence is not None
    assert placement.confidence > 0.9
    assert devices_of(model) == {"sim"}
    assert device.contexts == 1
    data = TensorDataset(torch.randn(1024, 256), torch.randint(0, 10, (1024,)))
    losses = []
    for _ in range(6):
        for x, y in placement.batches(DataLoader(data, batch_size=512)):
            assert x.device.type == y.device.type == "sim"
            with placement.step():
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(model(x), y)
                loss.backward()
                optimizer.step()
            losses.append(loss.item())
    assert losses[-1] < losses[0]
    assert {v.device.type for v in optimizer.state[model[0].weight].values() if v.dim()} == {"sim"}  # type: ignore[index]
    placement = placer.choose(model, (512, 256), mode="infer", profile=profile_file, devices=["cpu"])
    assert placement.decision.device == "cpu"
    assert devices_of(model) == {"cpu"}


def test_asked_again_a_model_that_was_moved_away_comes_back(device: SimulatedDevice, profile_file: Path) -> None:
    model = large()
    for here, move, there in (("cpu", True, "sim"), ("sim", True, "sim"), ("cpu", False, "cpu"), ("cpu", True, "sim")):
        placer.choose(model.to(here), (512, 256), mode="train", profile=profile_file, move=move)
        assert devices_of(model) == {there}


def test_a_job_is_moved_as_a_whole_or_not_at_all(
    device: SimulatedDevice, profile_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = large(), large()
    adam = torch.optim.Adam(first.parameters())
    parts = [
        placer.Part("one", first, (512, 256), mode="train", optimizer=adam),
        placer.Part("two", second, (512, 256), mode="train", count=2),
    ]
    to = nn.Module.to

    def refuse(self: nn.Module, *args: object, **kwargs: object) -> nn.Module:
        if self is second:
            raise RuntimeError("the device is gone")
        return to(self, *args, **kwargs)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(nn.Module, "to", refuse)
        with pytest.warns(placer.PlacerWarning, match="not placed as predicted"):
            assert placer.choose(placer.Job(parts), profile=profile_file).decision.device == "cpu"
    assert devices_of(first) == devices_of(second) == {"cpu"}
    assert placer.choose(placer.Job(parts), profile=profile_file).decision.device == "sim"
    assert devices_of(first) == devices_of(second) == {"sim"}


@pytest.mark.parametrize(("rate", "chosen"), [(1e16, "meta"), (1e7, "sim")])
def test_of_two_kinds_of_accelerator_the_faster_one_is_taken(
    rate: float, chosen: str, device: SimulatedDevice, with_cpu: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in (machine, devices, identity):
        monkeypatch.setattr(place, "accelerators", lambda: ("sim", "meta"))
    rates = {"dispatch_seconds": 1e-7, "flops/float32": rate, "bytes_per_second": rate, "memory_bytes": 1e10}
    other = Device("meta", 1, rates, {}, {}, {"base": 0.05, "ops": 0.0})
    both = replace(with_cpu, fits=(*with_cpu.fits, other), fingerprint=machine.fingerprint())
    model = large()
    placement = placer.choose(model, (512, 256), mode="train", profile=both)
    assert placement.decision.device == chosen
    assert set(placement.predictions) == {"cpu", "sim", "meta"}
    assert devices_of(model) == {chosen}


def test_real_steps_are_timed_on_all_devices_that_are_here(device: SimulatedDevice, profile_file: Path) -> None:
    model = large()
    timed = placer.Options(measure="always")
    found = placer.explain(model, (64, 256), mode="train", profile=profile_file, what_if="T4", options=timed)
    assert set(found.devices) == {"cpu", "sim", "cuda@Tesla T4"}
    assert set(found.measured) == {"cpu", "sim"}
    for name, row in found.measured.items():
        assert row.off == pytest.approx(found.devices[name].step_seconds / row.step_seconds - 1.0)
        assert f"{name} " in str(found).partition("measured  ")[2]
    assert devices_of(model) == {"cpu"}  # copies ran
