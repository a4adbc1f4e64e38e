"""Every kind of input a model takes, and what the trace says about them."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from placer.errors import TraceError
from placer.tracing import trace
from placer.workload import make_workload


def test_tensors_made_in_forward_join_in() -> None:
    class Makes(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            position = torch.arange(x.shape[1], device="cpu").float()
            table = torch.tensor([[1.0, 2.0]]).to(x.device)
            return (x + position + torch.zeros(x.shape[1], device=x.device)).unsqueeze(-1) * table.to(x)

    assert trace(make_workload(Makes(), (3, 4), mode="infer")).outputs[0].shape == (3, 4, 2)


def test_a_device_named_in_forward_is_never_touched() -> None:
    class Moves(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.cuda() + torch.ones(4, device="cuda") + x.to("cuda", torch.float32)

    assert trace(make_workload(Moves(), (3, 4), mode="infer")).outputs[0].shape == (3, 4)
    assert not torch.cuda.is_initialized()


def test_copies_to_the_host_and_known_values_are_syncs() -> None:
    class Syncs(nn.Module):
        def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
            longest = int(lengths.max().item())
            chosen = x[lengths > 1]
            return chosen[:, :longest].cpu()

    traced = trace(make_workload(Syncs(), batch=(torch.randn(3, 9), torch.tensor([2, 1, 4])), mode="infer"))
    assert traced.syncs == 3
    assert traced.outputs[0].shape == (2, 4)


def test_failures_say_where() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.Linear(3, 3)))
    with pytest.raises(TraceError, match=r"the forward failed in layer '1.0', after aten::.*: RuntimeError: "):
        trace(make_workload(model, (5, 4), mode="train"))


def test_what_cannot_be_traced_is_said_clearly() -> None:
    frozen = nn.Linear(4, 2).requires_grad_(False)
    with pytest.raises(TraceError, match="does not depend on any parameter"):
        trace(make_workload(frozen, (5, 4), mode="train"))


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


def test_positions_counted_in_forward_may_steer_it() -> None:
    class Counts(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            position = torch.arange(x.shape[1], device=x.device)
            return x[:, position > 1] if bool((position.diff() == 1).all()) else x

    assert trace(make_workload(Counts(), (3, 9), mode="infer")).outputs[0].shape == (3, 7)


def test_small_constants_may_be_read() -> None:
    class Solver(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("times", torch.linspace(0, 1, 5))
            self.field = nn.Linear(3, 3)

        def forward(self, y: torch.Tensor) -> torch.Tensor:
            for start, end in zip(self.times[:-1], self.times[1:], strict=True):
                if bool(end > start):
                    y = y + (end - start) * self.field(y)
            return y

    traced = trace(make_workload(Solver(), (2, 3), mode="train"))
    assert sum(c.op == "aten::addmm" for c in traced.calls) == 4
    assert traced.syncs == 4


@pytest.mark.parametrize(("drop", "layers"), [(0.0, 6), (1.0, 0)])
def test_a_draw_that_drops_layers_may_be_read(drop: float, layers: int) -> None:
    class LayerDrop(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(3, 3) for _ in range(6))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for layer in self.layers:
                if torch.rand([]) >= drop:  # as transformers' OPT, BART and Whisper do in training
                    x = layer(x)
            return x.requires_grad_()

    workload = make_workload(LayerDrop(), (2, 3), mode="train")
    before = torch.random.get_rng_state()
    traced = trace(workload)
    assert sum(c.op == "aten::addmm" for c in traced.calls) == layers
    assert any("this is what one draw runs" in note for note in traced.notes)
    assert not any("real run" in note for note in traced.notes)
    assert torch.equal(torch.random.get_rng_state(), before)
