"""Every device is priced by the trace of its kind."""

from __future__ import annotations

import torch
from torch import nn

from placer.pricing import predict
from placer.profile import Profile
from placer.tracing import trace
from placer.workload import make_workload


class Region(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            return self.linear(x)


def test_a_device_is_priced_by_the_trace_of_its_kind(handmade_profile: Profile) -> None:
    traced = trace(make_workload(Region(), (8, 64), mode="infer"))
    predictions = predict(traced, handmade_profile, devices=("cpu", "cuda"))
    assert predictions["cpu"].priced.trace is traced
    assert predictions["cuda"].priced.trace is traced.on("cuda")
    dtypes = {name: {w.dtype for w in p.priced.works if w.op == "aten::addmm"} for name, p in predictions.items()}
    assert dtypes == {"cpu": {"float32"}, "cuda": {"bfloat16"}}
