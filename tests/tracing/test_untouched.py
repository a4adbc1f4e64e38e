"""Pricing leaves no trace on the user's model or on global state."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from pictures import changed, picture
from torch import nn

from placer.errors import TraceError
from placer.tracing import trace
from placer.workload import make_workload


@lru_cache
def table(length: int) -> torch.Tensor:
    return torch.arange(length).float()


class Stateful(nn.Module):
    """Everything a forward may change: buffers, plain tensors, counters, caches, random states, switches."""

    shared: ClassVar[dict[int, torch.Tensor]] = {}

    def __init__(self, fails: bool = False, reads: bool = False) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4)
        self.drop = nn.Dropout(0.5)
        self.normed = nn.utils.parametrizations.weight_norm(nn.Linear(4, 4))
        self.spectral = nn.utils.spectral_norm(nn.Linear(4, 4))
        self.history = torch.zeros(3)
        self.counts = {"calls": 0, "log": []}
        self.draws = np.random.default_rng(1)
        self.fails, self.reads = fails, reads
        self.norm.eval()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x.mul_(2)
        self.counts["calls"] += 1
        self.counts["log"].append(random.random() + np.random.rand())  # noqa: NPY002
        self.history += 1
        self.history[0] = 5
        self.shared[len(x)] = x
        torch.set_num_threads(1)
        torch.backends.mha.set_fastpath_enabled(False)
        os.environ["PLACER_TEST"] = "1"
        x = x * table(4) + float(self.draws.random())
        x = self.spectral(self.normed(self.drop(self.norm(self.first(x)))))
        if self.reads:
            x = x * x.sum().item()
        if self.fails:
            raise ValueError("deep inside")
        return x + torch.randn(4)


def picture_of(model: Stateful) -> dict[str, Any]:
    return {
        **picture(model),
        "history": model.history.clone(),
        "counts": (model.counts["calls"], list(model.counts["log"])),
        "caches": (len(model.shared), table.cache_info().currsize, model.draws.bit_generator.state),
        "switches": (torch.get_num_threads(), torch.backends.mha.get_fastpath_enabled(), "PLACER_TEST" in os.environ),
    }


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("reads", [False, True], ids=["meta", "real"])
def test_everything_is_as_before(fails: bool, reads: bool) -> None:
    model = Stateful(fails, reads)
    seen: list[str] = []
    model.first.register_forward_hook(lambda *_: seen.append("hook"))
    model.first.weight.grad = torch.ones(4, 4)
    before, batch = picture_of(model), torch.ones(6, 4)
    workload = make_workload(model, batch=batch, mode="train")
    if fails:
        with pytest.raises(TraceError, match=r"forward failed in the step.*ValueError: deep inside"):
            trace(workload)
    else:
        traced = trace(workload)
        assert traced.calls
        assert traced.real == reads
        assert [note.rpartition(":")[0] for note in traced.notes if "draws" in note] == [
            "the step draws random numbers of Python",
            "the step draws random numbers of numpy",
        ]
    after = picture_of(model)
    assert changed(before, after) == []
    assert seen == []
    assert torch.equal(batch, torch.ones(6, 4))


class Region(nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cuda", torch.float16):
            return super().forward(x)


@contextmanager
def autocast_for_cuda() -> Iterator[None]:
    torch.set_autocast_enabled("cuda", True)
    try:
        yield
    finally:
        torch.set_autocast_enabled("cuda", False)


@pytest.mark.parametrize(
    "outer",
    [torch.no_grad, torch.inference_mode, lambda: torch.autocast("cpu", torch.bfloat16), autocast_for_cuda],
)
def test_the_callers_modes_neither_matter_nor_change(outer: Callable[[], Any]) -> None:
    workload = make_workload(nn.Sequential(nn.Linear(3, 3), Region(3, 3)), (2, 3), mode="train")
    plain = trace(workload)
    with outer():
        modes = torch.is_grad_enabled(), torch.is_autocast_enabled("cpu"), torch.is_autocast_enabled("cuda")
        assert trace(workload) == plain
        after = torch.is_grad_enabled(), torch.is_autocast_enabled("cpu"), torch.is_autocast_enabled("cuda")
        assert after == modes
