"""Tracing models and step functions whose tensors are on an accelerator."""

from __future__ import annotations

from typing import Any

import torch
from simulated.device import SimulatedDevice
from torch import nn

from placer.tracing import child, trace
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


def test_integers_on_the_accelerator_keep_their_values(device: SimulatedDevice) -> None:
    model, example = Masked(), (torch.randn(2, 5, 4), torch.tensor([2, 3]))
    here = trace(make_workload(model, batch=example, mode="infer"))
    there = trace(make_workload(model.to("sim"), batch=tuple(t.to("sim") for t in example), mode="infer"))
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


def test_a_region_of_autocast_gives_what_the_device_gives(device: SimulatedDevice) -> None:
    model, x = Region(), torch.randn(3, 4)
    traced = trace(make_workload(model, (3, 4), mode="infer"))
    assert traced.outputs[0].dtype == "float32"
    assert traced.on("cuda") is traced
    ran = model.to("sim")(x.to("sim"))
    assert traced.on("sim").outputs[0].dtype == str(ran.dtype).removeprefix("torch.") == "bfloat16"
    again = trace(make_workload(model, batch=x.to("sim"), mode="infer"))
    assert again.on("sim").calls == traced.on("sim").calls


def test_after_a_backward_pass_steps_are_traced_in_a_child_still(device: SimulatedDevice) -> None:
    """A backward pass beside an accelerator starts threads; torch's autograd then refuses to run in a usual fork."""
    kept: list[Any] = []
    model = nn.Linear(4, 4).to("sim")
    model(torch.ones(3, 4, device="sim")).sum().backward()
    before = model.weight.clone(), model.weight.grad.clone()

    def step(x: torch.Tensor) -> None:
        kept.append(x)
        model(x).sum().backward()

    for workload in (
        make_workload(model, (3, 4), mode="train"),
        make_workload(step, (3, 4), modules=model, mode="train"),
    ):
        assert {"forward", "backward"} <= {call.phase for call in trace(workload).calls}
    assert child._autograd_has_threads()
    assert not kept
    assert torch.equal(model.weight, before[0])
    assert torch.equal(model.weight.grad, before[1])
