"""Peak memory and kept bytes, against hand-computed and measured values."""

from __future__ import annotations

import weakref
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from placer.tracing import trace
from placer.workload import make_workload


class Measured(TorchDispatchMode):
    """Bytes alive among the storages a real step makes."""

    def __init__(self) -> None:
        super().__init__()
        self.current = self.peak = 0
        self.seen: dict[int, Any] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        given = {t.untyped_storage()._cdata for t in args if torch.is_tensor(t)}
        for tensor in result if isinstance(result, (list, tuple)) else [result]:
            if not torch.is_tensor(tensor):
                continue
            storage = tensor.untyped_storage()
            if storage._cdata in given or any(ref() is storage for ref, _ in self.seen.values()):
                continue
            size = storage.nbytes()
            self.current += size
            self.peak = max(self.peak, self.current)
            self.seen[id(storage)] = (weakref.ref(storage), weakref.finalize(storage, self._freed, size))
        return result

    def _freed(self, size: int) -> None:
        self.current -= size


def test_an_mlp_by_hand() -> None:
    rows, width = 64, 100
    model = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
    traced = trace(make_workload(model, (rows, width), mode="train", loss=lambda out: out.sum()))
    activation = rows * width * 4
    forward = [c for c in traced.calls if c.phase == "forward" and not c.view]
    # addmm outputs die once relu has run; relu outputs are kept for backward
    assert [c.kept_bytes for c in forward] == [0, activation, 0, activation]
    # two kept outputs, and the gradients of a relu's output and input (the loss is a scalar and its gradient expanded)
    assert 3 * activation <= traced.peak_activation_bytes <= 4 * activation + 1000 + 2 * width * width * 4
    infer = trace(make_workload(model, (rows, width), mode="infer"))
    assert infer.peak_activation_bytes == 2 * activation


@pytest.mark.parametrize("mode", ["train", "infer"])
def test_peak_is_that_of_a_real_step(mode: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 16, 3),
        nn.GELU(),
        nn.Flatten(),
        nn.Linear(16 * 36, 10),
        nn.LogSoftmax(1),
    ).train(mode == "train")
    predicted = trace(make_workload(model, (32, 3, 16, 16), mode=mode)).peak_activation_bytes
    data = torch.randn(32, 3, 16, 16)
    with Measured() as measured, torch.set_grad_enabled(mode == "train"):
        output = model(data)
        if mode == "train":
            output.sum().backward()
    # Gradients of parameters count as activations only in the measurement.
    gradients = sum(p.numel() * 4 for p in model.parameters()) if mode == "train" else 0
    assert measured.peak - gradients <= predicted <= measured.peak * 1.01
