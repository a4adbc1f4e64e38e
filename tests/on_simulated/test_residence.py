"""A model that is on the device already: its memory, its one-time costs, and several equal devices."""

from __future__ import annotations

import gc
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from on_simulated.two_devices import Assemble
from simulated.device import DEVICE
from simulated.spec import SPEC
from torch import nn

import placer
from placer import machine
from placer.decision import measured as racing

#: Bytes of one float32 weight of ``wide``.
WEIGHT = 4 * 2000**2


def wide() -> nn.Module:
    return nn.Linear(2000, 2000)


def ask(model: nn.Module, profile: Path, **options: object) -> placer.Placement:
    return placer.choose(model, (512, 2000), **{"mode": "train", "profile": profile, "move": False, **options})  # type: ignore[arg-type]


def trained(model: nn.Module, device: str) -> torch.optim.Optimizer:
    """An optimizer that has stepped there: gradients and state are on the device."""
    model.to(device)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(4, 2000, device=device)).sum().backward()
    optimizer.step()
    return optimizer


def devices_of(model: nn.Module) -> set[str]:
    return {machine.normal_device(str(p.device)) for p in model.parameters()}


def test_a_model_that_trains_on_the_device_fits_there(assemble: Assemble, profile_file: Path) -> None:
    """Weights, gradients and state are four times the weight; what is free is less."""
    (device,) = assemble(replace(SPEC, memory=7 * WEIGHT))
    model = wide()
    optimizer = trained(model, "sim")
    gc.collect()
    assert device.memory.free < 4 * WEIGHT
    placement = ask(model, profile_file, optimizer=optimizer)
    predicted = placement.predictions["sim"]
    assert placement.decision.device == "sim"
    assert predicted.peak_memory_bytes > device.memory.free
    assert predicted.available_memory_bytes == device.memory.free + device.memory.used
    # Another model of that size has no room beside it.
    other = ask(wide(), profile_file)
    assert not other.predictions["sim"].fits
    assert "does not fit: it needs " in other.reason
    assert other.reason.endswith(" MB")


def test_what_is_predicted_to_be_needed_covers_what_a_step_needs(assemble: Assemble, profile_file: Path) -> None:
    """Of many tensors: the intermediates of an update are those of all of them, or of one at a time."""
    (device,) = assemble(SPEC)
    model = nn.Sequential(nn.Linear(2000, 500), *(nn.Linear(500, 500) for _ in range(8)), nn.Linear(500, 2000))
    needed = ask(model, profile_file).predictions["sim"].peak_memory_bytes
    optimizer = trained(model, "sim")
    gc.collect()
    device.memory.peak = device.memory.used
    x = torch.ones(512, 2000, device="sim")
    for _ in range(2):
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
    assert device.memory.peak <= needed <= 1.5 * device.memory.peak


def test_a_short_run_is_charged_what_is_still_to_be_paid(assemble: Assemble, profile_file: Path) -> None:
    assemble(SPEC)
    model = wide()
    first = ask(model, profile_file, steps=3)
    assert first.predictions["sim"].one_time_seconds > SPEC.context
    assert first.predictions["cpu"].one_time_seconds == 0.0
    model.to("sim")
    second = ask(model, profile_file, steps=3)  # not what was decided before: the model has moved
    assert second.predictions["sim"].one_time_seconds < 0.1 * SPEC.context
    copies = SPEC.copies["d2h", "pageable"]
    way_back = WEIGHT / copies.bytes_per_second + 2 * copies.seconds_per_tensor
    assert second.predictions["cpu"].one_time_seconds == pytest.approx(way_back, rel=0.2)
    model.to("cpu")
    third = ask(model, profile_file, steps=3)
    assert third.predictions["cpu"].one_time_seconds == 0.0
    assert 0.0 < third.predictions["sim"].one_time_seconds < SPEC.context  # the context is there by now


def test_of_equal_devices_one_is_priced_and_the_choice_is_between_kinds(assemble: Assemble, profile_file: Path) -> None:
    devices = assemble(SPEC, SPEC, SPEC, SPEC)
    model = wide()
    placement = ask(model, profile_file, move=True)
    assert set(placement.predictions) == {"cpu", "sim"}
    assert placement.decision.device == "sim"
    assert placement.confidence is not None
    assert placement.confidence > 0.9  # not a toss between twins
    assert devices_of(model) == {"sim"}
    assert [device.contexts for device in devices] == [1, 0, 0, 0]


def test_the_current_device_is_taken_and_everything_goes_there(assemble: Assemble, profile_file: Path) -> None:
    devices = assemble(SPEC, SPEC, SPEC)
    module = torch.get_device_module("sim")
    module.set_device(2)
    torch.ones(1, device="sim")  # a context, on the current device
    model = wide()
    placement = ask(model, profile_file, move=True)
    assert placement.decision.device == "sim:2"
    assert devices_of(model) == {"sim:2"}
    assert placement.to(torch.ones(1)).device == torch.device("sim:2")
    assert [batch.device for batch in placement.batches([torch.ones(1)])] == [torch.device("sim:2")]
    module.set_device(1)
    assert ask(model, profile_file, mode="infer").decision.device == "sim:2"  # where the model is
    assert [device.contexts for device in devices] == [0, 0, 1]


def test_a_race_without_memory_is_the_answer_that_was_priced(
    assemble: Assemble, profile_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (device,) = assemble(replace(SPEC, memory=7 * WEIGHT))
    model = wide()
    optimizer = trained(model, "sim")
    monkeypatch.setattr(racing, "time", SimpleNamespace(perf_counter=DEVICE.clock))
    placement = ask(model, profile_file, optimizer=optimizer, options=placer.Options(measure="always"))
    assert placement.decision.device == "sim"
    assert placement.confidence is not None
    (note,) = (n for n in placement.explain().notes if "was not timed" in n)
    assert "sim out of memory" in note
    gc.collect()
    assert device.memory.used < 4.5 * WEIGHT
