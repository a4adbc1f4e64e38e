"""The Python a forward pass enters, counted while it is traced."""

from __future__ import annotations

import cProfile
import gc
import pstats
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from collector import functions_entered
from forwards import module
from torch import Tensor, nn

from placer.tracing import trace
from placer.workload import make_workload


def talkative() -> nn.Module:
    """Twenty Python functions around one op."""

    def same(x: Tensor) -> Tensor:
        return x

    def forward(self: Any, x: Tensor) -> Tensor:
        for _ in range(20):
            x = same(x)
        return x * 2

    return module(forward)


@pytest.mark.parametrize(
    "model",
    [
        nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2), nn.Softmax(-1)),
        nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.GELU(), nn.Dropout()),
        talkative(),
    ],
    ids=["mlp", "normalized", "talkative"],
)
def test_the_count_is_that_of_a_real_forward_pass(model: nn.Module) -> None:
    model.eval()
    x = torch.randn(3, 4)
    traced = trace(make_workload(model, batch=x, mode="infer"))
    with torch.no_grad():
        model(x)
        assert traced.python_calls == pytest.approx(functions_entered(partial(model, x)), rel=0.2, abs=2)


def test_what_a_module_does_as_it_is_imported_is_no_part_of_the_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "imported_in_forward.py").write_text("def f(): pass\nfor _ in range(500): f()\n")
    monkeypatch.syspath_prepend(tmp_path)

    def forward(self: Any, x: Tensor) -> Tensor:
        import imported_in_forward  # type: ignore[import-not-found]

        imported_in_forward.f()
        return x * 2

    try:
        first, second = (trace(make_workload(module(forward), batch=torch.randn(3), mode="infer")) for _ in range(2))
    finally:
        sys.modules.pop("imported_in_forward", None)
    assert first.python_calls == second.python_calls < 10


def test_a_profiler_written_in_c_goes_on_listening() -> None:
    def seen_afterwards() -> None:
        pass

    profiler = cProfile.Profile()
    profiler.enable()
    try:
        trace(make_workload(nn.Sequential(nn.Linear(4, 8), nn.ReLU()), batch=torch.randn(3, 4), mode="infer"))
        seen_afterwards()
    finally:
        profiler.disable()
    functions = {function for _, _, function in pstats.Stats(profiler).stats}  # type: ignore[attr-defined]
    assert {"trace", "seen_afterwards"} <= functions


def test_what_listens_to_the_garbage_collector_is_not_counted() -> None:
    def forward(self: Any, x: Tensor) -> Tensor:
        self.litter = [[] for _ in range(1000)]  # containers: what makes the collector start
        return x * 2

    workload = make_workload(module(forward), (2, 2), mode="infer")
    count, before = trace(workload).python_calls, gc.get_threshold()
    gc.callbacks.append(lambda phase, info: None)
    gc.set_threshold(10)
    try:
        assert trace(workload).python_calls == count
    finally:
        gc.set_threshold(*before)
        gc.callbacks.pop()


def test_tracing_a_step_function_counts_nothing_of_its_own() -> None:
    """A step that makes modules, writes weights, runs backward and clips enters what it enters untraced."""
    network = nn.Sequential(*[nn.Sequential(nn.Linear(4, 4), talkative()) for _ in range(30)])
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)

    def step(x: Tensor) -> None:
        nn.ReLU()(network(x)).sum().backward()
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()

    x = torch.randn(2, 4)
    step(x)
    count = functions_entered(partial(step, x)) - functions_entered(optimizer.step)  # an update has a price of its own
    assert trace(make_workload(step, batch=x, modules=network)).python_calls == pytest.approx(count, rel=0.1)
