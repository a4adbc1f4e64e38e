"""Regions of torch.autocast inside a step take effect on the kind of device they name, which need not be here."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import torch
from forwards import module
from torch import nn
from torch.utils.checkpoint import checkpoint

from placer.tracing import Trace, trace
from placer.workload import make_workload


def regions() -> nn.Module:
    """A layer in every kind of region; the name of each layer says what its product runs in on CUDA."""

    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        x = self.outside(x)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            x = self.inside(x)
            with torch.autocast("cuda", dtype=torch.float16):
                x = self.inner(x)
            with torch.autocast("cuda", enabled=False):
                x = self.off(x.float())
        with torch.cuda.amp.autocast(dtype=torch.float16):
            return self.deprecated(x)

    layers = {name: nn.Linear(4, 4) for name in ("outside", "inside", "inner", "off", "deprecated")}
    return module(forward, **layers)


def products(traced: Trace) -> dict[str, str]:
    """The dtype of each layer's product in forward."""
    return {c.layer: c.outputs[0].dtype for c in traced.calls if c.op == "aten::addmm" and c.phase == "forward"}


def test_regions_for_cuda_count_on_cuda_alone() -> None:
    traced = trace(make_workload(regions(), (3, 4), mode="train", optimizer="sgd"))
    assert set(products(traced).values()) == {"float32"}
    assert traced.on("cpu") is traced.on("xpu") is traced
    on_cuda = traced.on("cuda")
    assert on_cuda is traced.on("cuda:1")
    assert products(on_cuda) == {
        "outside": "float32",
        "inside": "bfloat16",
        "inner": "float16",
        "off": "float32",
        "deprecated": "float16",
    }
    gradients = {c.layer: c.inputs[0].dtype for c in on_cuda.calls if c.op == "aten::mm" and c.phase == "backward"}
    assert gradients == products(on_cuda)
    assert "regions of torch.autocast for cuda take effect on cuda only" in on_cuda.notes


def test_in_a_step_under_autocast_a_region_can_switch_it_off() -> None:
    traced = trace(make_workload(regions(), (3, 4), mode="infer", autocast=torch.bfloat16))
    assert set(products(traced).values()) == {"bfloat16"}
    assert products(traced.on("cuda"))["off"] == "float32"
    assert products(traced.on("cuda"))["outside"] == "bfloat16"


def follows(self: Any, x: torch.Tensor) -> torch.Tensor:
    with torch.autocast(x.device.type, dtype=torch.bfloat16, enabled=self.enabled):
        return self.inside(x)


@pytest.mark.parametrize(
    ("enabled", "around", "expected"),
    [
        (True, None, "bfloat16"),
        (False, None, "float32"),
        (False, torch.bfloat16, "float32"),
    ],
)
def test_a_region_named_after_the_tensors_counts_everywhere(enabled: bool, around: Any, expected: str) -> None:
    model = module(follows, inside=nn.Linear(4, 4), enabled=enabled)
    traced = trace(make_workload(model, (3, 4), autocast=around))
    assert traced.others == {}
    assert not any("real run" in note for note in traced.notes)
    assert products(traced) == {"inside": expected}


def checkpointed(self: Any, x: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cuda", dtype=torch.bfloat16) if self.region else contextlib.nullcontext():
        result: torch.Tensor = checkpoint(self.inside, x, use_reentrant=False)
    return result


@pytest.mark.parametrize("as_function", [False, True])
@pytest.mark.parametrize("region", [True, False])
def test_activation_checkpointing_runs_the_same_ops_again(region: bool, as_function: bool) -> None:
    first_output = module(lambda self, outputs: outputs[0])
    inside = nn.Sequential(nn.Linear(4, 4), nn.Dropout(), nn.LSTM(4, 4), first_output, nn.Linear(4, 4))
    model = module(checkpointed, inside=inside, region=region)
    target = (lambda x: model(x).sum().backward()) if as_function else model
    workload = make_workload(
        target, (3, 4), mode=None if as_function else "train", autocast=None if region else torch.bfloat16
    )
    traced = trace(workload).on("cuda")
    for op, runs in (("aten::addmm", 3), ("aten::dropout", 2), ("aten::lstm", 2), ("aten::lstm_backward", 1)):
        ran = [c.inputs[0].dtype for c in traced.calls if c.op == op]
        assert ran == ["bfloat16"] * runs, op  # the last product is not needed again


def test_the_usual_loop_with_a_gradient_scaler() -> None:
    scaler = torch.amp.GradScaler("cpu")  # one for cuda would switch itself off here
    before = dict(scaler.__dict__)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def step(x: torch.Tensor) -> None:
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            loss = model(x).square().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    weights = [p.clone() for p in model.parameters()]
    traced = trace(make_workload(step, (5, 4)))
    on_cuda = traced.on("cuda")
    assert set(products(traced).values()) == {"float32"}
    assert set(products(on_cuda).values()) == {"float16"}
    unscaled = [c for c in on_cuda.calls if c.op == "aten::_amp_foreach_non_finite_check_and_unscale_"]
    assert len(unscaled) == 1
    assert len(unscaled[0].inputs) >= 4
    reads = [c.syncs for c in on_cuda.calls if c.op == "aten::_local_scalar_dense"]
    assert reads == [1]
    assert on_cuda.syncs == 1
    assert scaler.__dict__ == before
    assert all(torch.equal(a, b) for a, b in zip(weights, model.parameters(), strict=True))


def of_its_spectrum(self: Any, x: torch.Tensor) -> torch.Tensor:
    with torch.autocast(x.device.type, dtype=torch.bfloat16):
        return torch.fft.rfft(self.layer(x)).abs().float()


def test_what_the_cpu_alone_keeps_in_float32() -> None:
    """There is no transform of bfloat16: the CPU's autocast casts to float32, that of CUDA leaves it to the script."""
    traced = trace(make_workload(module(of_its_spectrum, layer=nn.Linear(4, 8)), (3, 4)))
    assert "aten::_fft_r2c" in [call.op for call in traced.calls]
    assert not traced.real
    assert any("Unsupported dtype BFloat16" in note for note in traced.notes)
