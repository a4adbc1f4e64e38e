"""The recorded op calls are those a real step dispatches."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from placer.calibration.benchmarks.kinds import Iterated
from placer.tracing import Trace, trace
from placer.tracing.trace_data import spec_of
from placer.workload import make_workload


class Real(TorchDispatchMode):
    """What the dispatcher sees on the CPU. Autograd's detach calls are there only because ops are intercepted."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[str, tuple[Any, ...], tuple[Any, ...]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found: list[Any] = []
        for value in (*args, *(kwargs or {}).values()):
            found += [v for v in (value if isinstance(value, (list, tuple)) else [value]) if torch.is_tensor(v)]
        inputs = tuple(spec_of(t) for t in found)
        result = func(*args, **(kwargs or {}))
        outputs = tuple(
            spec_of(t) for t in (result if isinstance(result, (list, tuple)) else [result]) if torch.is_tensor(t)
        )
        name = func._schema.name
        if name != "aten::detach":
            self.calls.append((name, inputs, outputs))
        return result


def assert_same_calls(model: nn.Module, shape: tuple[int, ...], mode: str) -> Trace:
    traced = trace(make_workload(model, shape, mode=mode))
    model.train(mode == "train")
    data = torch.randn(shape)
    with Real() as real, torch.set_grad_enabled(mode == "train"):
        output = model(data)
        if mode == "train":
            output.sum().backward()
    mine = [(c.op, c.inputs, c.outputs) for c in traced.calls if c.phase != "optimizer"]
    for ours, theirs in zip(mine, real.calls, strict=False):
        assert ours == theirs
    assert len(mine) == len(real.calls)
    return traced


class ChannelsLast(nn.Sequential):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = super().forward(x.contiguous(memory_format=torch.channels_last))
        return result


class Elementwise(nn.Module):
    """Operands that are broadcast, transposed, expanded, scalars, and of several dtypes."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        square = x[:, : len(x)]
        turned = torch.nn.functional.silu(square.t()) * 2.5 + square
        masked = torch.where(turned > 0, turned, torch.tensor(0.0)) / torch.tensor(3)
        counted = (x > 0).sum(0) / 2
        return torch.atan2(masked, turned[0]).sum() + torch.nn.functional.elu(x.t() + counted[:, None]).sum()


MODELS = {
    "channels last": (
        lambda: ChannelsLast(
            nn.Conv2d(6, 4, (3, 2), (2, 1), (1, 0), (1, 2), groups=2), nn.BatchNorm2d(4), nn.GELU(), nn.Hardswish()
        ),
        (2, 6, 9, 8),
    ),
    "elementwise": (lambda: nn.Sequential(nn.Linear(5, 7), Elementwise()), (4, 5)),
    "mlp": (lambda: nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3), nn.Tanh()), (16, 4)),
    "cnn": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
            nn.Conv2d(8, 6, 3, stride=2),
            nn.GroupNorm(2, 6),
            nn.SiLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(6, 5),
            nn.LogSoftmax(1),
        ),
        (4, 3, 16, 16),
    ),
    "conv1d": (
        lambda: nn.Sequential(
            nn.Conv1d(1, 8, 3), nn.BatchNorm1d(8), nn.ELU(), nn.ConvTranspose1d(8, 4, 4, 2), nn.GELU()
        ),
        (16, 1, 84),
    ),
    "norms": (
        lambda: nn.Sequential(nn.LayerNorm(12), nn.Linear(12, 12), nn.Softmax(-1), nn.PReLU(), nn.Linear(12, 2)),
        (3, 5, 12),
    ),
    "solver that reads its time": (
        lambda: Iterated(nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 3)), 4, 2, stacked=False, clocked=True),
        (5, 3),
    ),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("mode", ["train", "infer"])
def test_same_ops_shapes_and_strides_as_the_real_step(name: str, mode: str) -> None:
    make, shape = MODELS[name]
    assert_same_calls(make(), shape, mode)


def test_real_step_with_attention_differs_only_in_the_attention_kernel() -> None:
    model = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True), 2, enable_nested_tensor=False
    )
    traced = trace(make_workload(model, (3, 7, 16), mode="train"))
    data = torch.randn(3, 7, 16)
    with Real() as real:
        model.train()(data).sum().backward()
    kernel = "aten::_scaled_dot_product_flash_attention_for_cpu"
    theirs = Counter(name for name, *_ in real.calls)
    mine = Counter(c.op for c in traced.calls if c.phase != "optimizer")
    assert mine.pop("aten::scaled_dot_product_attention") == theirs.pop(kernel) == 2
    assert mine.pop("aten::scaled_dot_product_attention_backward") == theirs.pop(kernel + "_backward") == 2
    assert mine == theirs


def test_the_default_loss_sums_every_floating_output() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(2, 3), nn.Linear(2, 4)

        def forward(self, x: torch.Tensor) -> dict[str, Any]:
            return {"a": self.a(x), "rest": (self.b(x), x.argmax(1))}

    traced = trace(make_workload(Two(), (5, 2), mode="train"))
    updated = {c.layer for c in traced.calls if c.phase == "optimizer"}
    assert updated == {"a", "b"}
