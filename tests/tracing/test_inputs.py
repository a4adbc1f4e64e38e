"""What a forward does with its inputs and with tensors of its own making, and what a failure says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from forwards import module
from torch import Tensor, nn

from placer.errors import TraceError
from placer.tracing import trace
from placer.workload import make_workload


def makes_tensors(self: Any, x: Tensor) -> Tensor:
    position = torch.arange(x.shape[1], device="cpu").float()
    table = torch.tensor([[1.0, 2.0]]).to(x.device)
    return (x + position + torch.zeros(x.shape[1], device=x.device)).unsqueeze(-1) * table.to(x)


def names_a_device(self: Any, x: Tensor) -> Tensor:
    return x.cuda() + torch.ones(9, device="cuda") + x.to("cuda", torch.float32)


def copies_to_the_host(self: Any, x: Tensor) -> Tensor:
    lengths = torch.tensor([2, 1, 4], device=x.device)
    longest = int(lengths.max().item())
    chosen = x[lengths > 1]
    return chosen[:, :longest].cpu()


def steers_by_positions(self: Any, x: Tensor) -> Tensor:
    position = torch.arange(x.shape[1], device=x.device)
    return x[:, position > 1] if bool((position.diff() == 1).all()) else x


def reads_constants(self: Any, x: Tensor) -> Tensor:
    for start, end in zip(self.times[:-1], self.times[1:], strict=True):
        if bool(end > start):
            x = x + (end - start) * x
    return x


@pytest.mark.parametrize(
    ("forward", "shape", "syncs"),
    [
        (makes_tensors, (3, 9, 2), 0),
        (names_a_device, (3, 9), 0),
        (copies_to_the_host, (2, 4), 3),
        (steers_by_positions, (3, 7), 2),
        (reads_constants, (3, 9), 4),
    ],
)
def test_tensors_of_its_own_join_in_and_may_be_read(
    forward: Callable[..., Any], shape: tuple[int, ...], syncs: int
) -> None:
    """And a device that it names is never touched."""
    traced = trace(make_workload(module(forward, times=torch.linspace(0, 1, 5)), (3, 9), mode="infer"))
    assert (traced.outputs[0].shape, traced.syncs, traced.real) == (shape, syncs, False)
    assert not torch.cuda.is_initialized()


@pytest.mark.parametrize(
    ("model", "says"),
    [
        (
            nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.Linear(3, 3))),
            r"the forward failed in layer '1.0', after aten::.*: RuntimeError: ",
        ),
        (nn.Linear(4, 2).requires_grad_(False), "does not depend on any parameter"),
    ],
)
def test_failures_say_where(model: nn.Module, says: str) -> None:
    with pytest.raises(TraceError, match=says):
        trace(make_workload(model, (5, 4), mode="train"))


@pytest.mark.parametrize("mode", ["train", "infer"])
def test_autocast_runs_products_in_the_lower_precision(mode: str) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Linear(4, 2), nn.Softmax(-1))
    traced = trace(make_workload(model, (3, 4), mode=mode, autocast=torch.bfloat16))
    for call in traced.calls:
        if call.op in ("aten::addmm", "aten::mm"):
            assert {i.dtype for i in call.inputs} == {"bfloat16"}
        if call.op in ("aten::native_layer_norm", "aten::_softmax"):
            assert {i.dtype for i in call.inputs} == {"float32"}
    casts = [c.inputs[0].shape for c in traced.calls if c.op == "aten::_to_copy" and c.phase == "forward"]
    # the input of each layer, and weight and bias of the two products
    assert casts == [(3, 4), (4, 4), (4,), (3, 4), (3, 4), (2, 4), (2,), (3, 2)]


@pytest.mark.parametrize(("drop", "layers"), [(0.0, 6), (1.0, 0)])
def test_a_draw_that_drops_layers_may_be_read(drop: float, layers: int) -> None:
    def forward(self: Any, x: Tensor) -> Tensor:
        for layer in self.layers:
            if torch.rand([]) >= drop:  # as transformers' OPT, BART and Whisper do in training
                x = layer(x)
        return x.requires_grad_()

    model = module(forward, layers=nn.ModuleList(nn.Linear(3, 3) for _ in range(6)))
    before = torch.random.get_rng_state()
    traced = trace(make_workload(model, (2, 3), mode="train"))
    assert sum(c.op == "aten::addmm" for c in traced.calls) == layers
    assert any("this is what one draw runs" in note for note in traced.notes)
    assert not any("real run" in note for note in traced.notes)
    assert torch.equal(torch.random.get_rng_state(), before)
