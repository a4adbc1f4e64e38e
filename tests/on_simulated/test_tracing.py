"""Tracing models and step functions whose tensors are on an accelerator."""

from __future__ import annotations

import time

import pytest
import torch
from simulated.device import Device
from torch import nn

from placer.tracing import layout, step_function, trace, undo
from placer.tracing.fused_ops import DeviceKind
from placer.workload import make_workload


class Masked(nn.Module):
    """Reads a mask and lengths, which a trace needs the values of."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("index", torch.tensor([0, 2]))

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        kept = x[:, : int(lengths.max())]
        return self.linear(kept)[:, self.index[self.index > 0]]


def test_integers_on_the_accelerator_keep_their_values(device: Device) -> None:
    model, example = Masked(), (torch.randn(2, 5, 4), torch.tensor([2, 3]))
    here = trace(make_workload(model, example=example, mode="infer"))
    there = trace(make_workload(model.to("sim"), example=tuple(t.to("sim") for t in example), mode="infer"))
    assert there.calls == here.calls
    assert not any("real run" in note for note in there.notes)
    assert model.index.device.type == "sim"


class Region(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("sim", dtype=torch.bfloat16):
            return self.linear(x)


def test_a_region_of_autocast_gives_what_the_device_gives(device: Device) -> None:
    model, x = Region(), torch.randn(3, 4)
    traced = trace(make_workload(model, (3, 4), mode="infer"))
    assert traced.outputs[0].dtype == "float32"
    assert traced.on("cuda") is traced
    ran = model.to("sim")(x.to("sim"))
    assert traced.on("sim").outputs[0].dtype == str(ran.dtype).removeprefix("torch.") == "bfloat16"
    again = trace(make_workload(model, example=x.to("sim"), mode="infer"))
    assert again.on("sim").calls == traced.on("sim").calls


def test_a_step_function_is_traced_on_the_very_device_of_its_modules(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not on the current device of the same kind: that may be another one."""
    monkeypatch.setattr(undo.Undo, "tensor", lambda *_: None)  # the simulated device shares no storage
    model = nn.Linear(4, 4).to("sim")
    workload = make_workload(lambda x: model(x), (3, 4))
    run = step_function._Run(workload, DeviceKind(), undo.Undo(), 1.0, time.perf_counter)
    assert run.recorder.device == model.weight.device == torch.device("sim", 0)
    assert run.args[0].device == model.weight.device
    spec = layout.dense((2, 2), "float32")
    assert run.recorder._laid_out(None, spec).device == model.weight.device


def test_copies_take_a_share_of_the_free_memory_and_then_the_hosts(device: Device) -> None:
    changes, at = undo.Undo(), torch.device("sim", 0)
    held = torch.ones(1, device=at)
    most = int(0.25 * device.memory.free)
    assert changes._has_room(at, most - 1000)
    assert not changes._has_room(at, 2000)
    assert changes._has_room(at, 500)
    assert changes._has_room(torch.device("cpu"), 10**15)
    del held
