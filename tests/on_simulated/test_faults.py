"""A device that is gone, full, or refuses to start: the right answer and reason, or the default rule, one warning."""

from __future__ import annotations

import gc
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from on_simulated.two_devices import devices_of, large
from simulated.backend import Backend
from simulated.device import DEVICE, SimulatedDevice
from simulated.spec import SPEC
from torch import nn

import placer
from placer import PlacerWarning, machine, profile
from placer.calibration.benchmarks.probe import Probe
from placer.calibration.measuring.bench import Bench, attempt
from placer.calibration.measuring.journal import TOO_LARGE, Journal
from placer.profile.profile import Profile


@pytest.fixture
def calibrated_here(with_cpu: Profile) -> Profile:
    """Both devices calibrated, in this machine's place."""
    profile.save(replace(with_cpu, fingerprint=machine.fingerprint()))
    return profile.load()


def test_a_device_that_vanished_is_no_candidate(
    device: SimulatedDevice, calibrated_here: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Backend, "device_count", lambda self: 0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        placement = placer.choose(large(), (512, 256), mode="train")
    assert placement.decision.device == "cpu"
    assert set(placement.predictions) == {"cpu"}
    assert "no other device" in placement.reason


def test_a_device_busy_with_other_jobs_is_said_in_the_reason(
    device: SimulatedDevice, calibrated_here: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "utilization", lambda name: 0.97)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        placement = placer.choose(large(), (512, 256), mode="train", move=False)
    busy = "sim is 97% busy with other jobs, and predicted as if it were free"
    assert placement.reason.endswith(f"; {busy}")
    assert f"- {busy}" in placement.explain().to_text(width=1000, full=True).splitlines()
    assert busy in placer.explain(large(), (512, 256), mode="train").notes
    # Its own work is not held against it.
    placer.choose(large(), (512, 256), mode="train", devices=["sim"])
    assert "busy" not in placer.choose(large(), (256, 256), mode="train", move=False).reason


def test_a_device_that_fills_up_after_the_decision_leaves_the_model_where_it_was(
    device: SimulatedDevice, calibrated_here: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = large()
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(2, 256)).sum().backward()
    optimizer.step()
    before = [(parameter, parameter.detach().clone()) for parameter in model.parameters()]
    # Room for a part of the weights only, which the one who decided could not know.
    free = device.memory.free
    held = torch.empty(free - (600 << 10), dtype=torch.uint8, device="sim")
    monkeypatch.setattr(machine, "known_free_memory", lambda name: free)
    with pytest.warns(PlacerWarning, match=r"not placed as predicted.*OutOfMemoryError.*PLACER_DEVICE=cpu") as seen:
        placement = placer.choose(model, (512, 256), mode="train", optimizer=optimizer)
    assert len(seen) == 1
    assert (placement.decision.device, placement.confidence) == ("cpu", None)
    assert placement.explain().decision.device == "sim"  # what was predicted is still there to be read
    assert devices_of(model) == {"cpu"}
    for now, (parameter, value) in zip(model.parameters(), before, strict=True):
        assert now is parameter
        assert torch.equal(now, value)
    assert {v.device.type for state in optimizer.state.values() for v in state.values()} == {"cpu"}
    model(torch.ones(2, 256)).sum().backward()
    optimizer.step()
    with pytest.raises(torch.OutOfMemoryError):
        placer.choose(model, (512, 256), mode="train", devices=["sim"])
    del held
    gc.collect()


def refuse(*_: Any, **__: Any) -> Any:
    raise RuntimeError("The driver on your system is too old")


def test_a_driver_that_is_too_old_is_one_warning_and_the_cpu(
    device: SimulatedDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No profile, a device that is listed, and a context that cannot be created."""
    monkeypatch.setattr(SimulatedDevice, "touch", refuse)
    model = large()
    with pytest.warns(PlacerWarning, match="run: placer calibrate") as seen:
        placement = placer.choose(model, (512, 256), mode="train")
    assert len(seen) == 1
    assert placement.decision.device == "cpu"
    refused = "cpu: the move to sim failed (RuntimeError: The driver on your system is too old)"
    assert placement.reason.startswith(refused)
    assert devices_of(model) == {"cpu"}


def test_of_an_accelerator_that_nobody_knows_it_is_the_default_rule_and_one_warning(
    device: SimulatedDevice, with_cpu: Profile
) -> None:
    other = {**machine.fingerprint(), "cpu": "another CPU"}
    profile.save(replace(with_cpu, fingerprint=other))
    with pytest.warns(PlacerWarning, match=r"sim is not calibrated .* placer calibrate") as seen:
        placement = placer.choose(large(), (512, 256), mode="train")
    assert len(seen) == 1
    assert placement.decision.device == "sim"
    assert placement.confidence is None


def tangled() -> nn.Module:
    """What refers to itself is not gone with the last name for it, as many real modules are not."""
    module = nn.Linear(5000, 6000)
    module.itself = [module]  # type: ignore[assignment]
    return module


def test_out_of_memory_while_calibrating_is_infeasible_and_the_memory_is_free_again(
    device: SimulatedDevice, calibrated_sim: Profile, tmp_path: Path
) -> None:
    bench = Bench("sim", torch.get_num_threads(), rates=calibrated_sim.fit("sim").rates, clock=DEVICE.clock)
    journal = Journal(tmp_path / "p.journal", {})
    small = Probe("matmul", "small", lambda: nn.Linear(8, 8), lambda: (torch.ones(4, 8),), "train", "adam")
    huge = Probe("matmul", "huge", tangled, lambda: (torch.ones(4, 5000),), "train", "adam")
    assert attempt(bench, small, seconds=1e-3, journal=journal) is not None
    gc.collect()
    before = device.memory.used
    gc.disable()
    try:
        assert attempt(bench, huge, seconds=1e-3, journal=journal) is None
    finally:
        gc.enable()
    assert [(f.name, f.reason) for f in journal.failures] == [("huge", TOO_LARGE)]
    assert device.memory.peak > SPEC.memory // 2  # it did run, until there was no room
    assert device.memory.used <= before
    assert attempt(bench, small, seconds=1e-3, journal=journal) is not None
