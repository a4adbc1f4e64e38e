"""What compiled code costs the host."""

from __future__ import annotations

import sys

import pytest
import torch
from torch import nn

from placer.pricing import describe_step
from placer.pricing.compiled_host import REFERENCE_CALL, compilation_seconds, host_counts, loading_seconds, speed
from placer.pricing.framework import COMPILED, framework_counts, framework_seconds
from placer.pricing.fusion import Place, places_in_kernels
from placer.pricing.work import Work
from placer.tracing import Trace, trace
from placer.workload import make_workload


def parts(model: nn.Module, mode: str) -> tuple[Trace, list[Work], list[Place], list[str]]:
    found = trace(make_workload(torch.compile(model), (32, 16), mode=mode))
    works = list(describe_step(found))
    regions = [call.phase if call.phase in ("forward", "backward") else "" for call in found.calls]
    return found, works, places_in_kernels(found, works, regions), regions


def counts(model: nn.Module, mode: str, framework: dict[str, float] | None = None) -> dict[str, float]:
    found, works, places, regions = parts(model, mode)
    return host_counts(found, [1e-6] * len(works), works, places, regions, framework or {})


def mlp(layers: int = 2) -> nn.Module:
    return nn.Sequential(*(nn.Sequential(nn.Linear(16, 16), nn.ReLU()) for _ in range(layers)))


def test_a_call_a_kernel_and_a_library_call_are_counted() -> None:
    found = counts(mlp(), "infer")
    assert (found["compiled_call"], found["compiled_training"]) == (1.0, 0.0)
    assert (found["compiled_kernel"], found["compiled_library"]) == (2.0, 2.0)
    assert (found["forward_op"], found["python_call"], found["autograd_node"]) == (0.0, 0.0, 0.0)


def test_a_training_step_keeps_the_eager_loss_and_update() -> None:
    found = counts(mlp(), "train")
    eager = trace(make_workload(mlp(), (32, 16), mode="train"))
    before = framework_counts(eager, [1e-6] * len(eager.calls))
    assert (found["compiled_call"], found["compiled_training"]) == (2.0, 1.0)
    assert found["updated_tensor"] == before["updated_tensor"] == 4.0
    assert found["forward_op"] == 1.0  # the loss
    assert found["autograd_node"] == 1.0 + 1.0 + 4.0


def test_the_host_takes_the_measured_seconds_in_proportion_to_its_python() -> None:
    framework = {"python_call": 2 * REFERENCE_CALL}
    assert speed({}) == 1.0
    assert speed(framework) == 2.0
    assert speed({"python_call": 1.0}) == 3.0
    found = counts(mlp(), "infer", framework)
    expected = COMPILED["compiled_call"] + 2 * COMPILED["compiled_kernel"] + 2 * COMPILED["compiled_library"]
    assert framework_seconds(found, {}) == pytest.approx(2 * expected)


def test_compiling_takes_longer_for_more_kernels_and_for_the_compiler_to_load(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = [parts(mlp(2), "infer"), parts(mlp(6), "infer"), parts(mlp(2), "train")]
    few, many, trained = (compilation_seconds(places, works, regions, {}) for _, works, places, regions in steps)
    assert few == pytest.approx(0.5 + 4 * 0.005 + 2 * 0.3)  # a graph, four ops and two kernels
    assert many == pytest.approx(0.5 + 12 * 0.005 + 6 * 0.3)
    assert trained - few > 0.5  # the gradient is a graph of its own
    _, works, places, regions = parts(mlp(2), "infer")
    assert compilation_seconds(places, works, regions, {"python_call": 2 * REFERENCE_CALL}) == pytest.approx(2 * few)
    monkeypatch.setitem(sys.modules, "torch._inductor.compile_fx", sys)
    assert loading_seconds({}) == 0.0
    monkeypatch.delitem(sys.modules, "torch._inductor.compile_fx")
    assert loading_seconds({}) > 3.0
