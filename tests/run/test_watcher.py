"""What the watcher sees, and that the script does not notice it."""

from __future__ import annotations

import gc
import itertools
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from process_state import process_state
from torch import Tensor, nn
from torch.nn.modules import module as hooks

from placer import machine
from placer.run import watcher as watching
from placer.run.watcher import FIRST_CALLS, Watcher


@pytest.fixture
def watcher() -> Iterator[Watcher]:
    """A watcher whose clock shows one second more each time; no hook of it is left behind."""
    ticks = itertools.count()
    watcher = Watcher(clock=lambda: float(next(ticks)))
    watcher.start()
    yield watcher
    watcher.stop()
    assert not hooks._has_any_global_hook()


def net(width: int = 8) -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.BatchNorm1d(width), nn.Linear(width, 2))


def train(model: nn.Module, steps: int = 5, *, optimizer: torch.optim.Optimizer | None = None, runs: int = 1) -> Tensor:
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    criterion = nn.CrossEntropyLoss()
    loss = torch.zeros(())
    for _ in range(steps):
        for _ in range(runs):
            loss = criterion(model(torch.randn(16, 4)), torch.randint(2, (16,)))
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return loss.detach()


def test_a_trained_model_is_seen_and_not_kept_alive(watcher: Watcher) -> None:
    model = net()
    alive = [weakref.ref(model), *map(weakref.ref, model.parameters())]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    torch.optim.lr_scheduler.StepLR(optimizer, 2)  # wraps step() in a function that holds the optimizer
    train(model, 5, optimizer=optimizer)
    alive.append(weakref.ref(optimizer))
    del model, optimizer
    gc.collect()
    assert [reference() for reference in alive] == [None] * len(alive)
    (seen,) = watcher.models
    assert (seen.name, seen.device, seen.mode, seen.alike) == ("Sequential", "cpu", "train", 1)
    assert (seen.steps, seen.seconds, seen.runs_per_step) == (5, 1.0, 1)
    assert (seen.usual.args[0].shape, seen.usual.count, seen.usual.data) == ((16, 4), 5, "host")
    assert seen.copy is not None
    assert all(p.is_meta for p in seen.copy.parameters())
    assert isinstance(seen.optimizer, torch.optim.SGD)
    (group,) = seen.optimizer.param_groups
    assert group["momentum"] == 0.9
    assert all(a is b for a, b in zip(group["params"], seen.copy.parameters(), strict=True))
    assert watcher.failure is None


def test_the_script_is_the_same_with_it() -> None:
    def script() -> tuple[list[Tensor], Tensor]:
        torch.manual_seed(3)
        model = net()
        loss = train(model, 30)
        return [*model.state_dict().values(), torch.random.get_rng_state()], loss

    plain, before = script(), process_state()
    watcher = Watcher()
    watcher.start()
    watched = script()
    watcher.stop()
    assert watcher.models[0].steps == 30
    assert all(torch.equal(a, b) for a, b in zip(plain[0], watched[0], strict=True))
    assert plain[1] == watched[1]
    assert process_state()["function modes"] == before["function modes"]


def test_hooks_are_gone_when_there_is_nothing_new(watcher: Watcher) -> None:
    model = net().eval()
    x = torch.randn(3, 4)
    for _ in range(FIRST_CALLS - 1):
        model(x)
    assert hooks._has_any_global_hook()
    model(x)
    assert not hooks._has_any_global_hook()
    assert watcher.models[0].usual.count == FIRST_CALLS


def test_steps_bring_the_hooks_back_for_new_models(watcher: Watcher) -> None:
    train(net(), FIRST_CALLS + 1)
    assert not hooks._has_any_global_hook()
    train(net(9), 2)  # not seen: an optimizer's first step comes after a model's first calls
    train(net(10), 1)
    assert [seen.copy[0].out_features for seen in watcher.models if isinstance(seen.copy, nn.Sequential)] == [8, 9, 10]


def test_inference_is_told_from_training(watcher: Watcher) -> None:
    model = net()
    model.eval()
    with torch.no_grad():
        model(torch.randn(2, 4))
    assert watcher.models[0].mode == "infer"
    train(model.train(), 3)
    model.eval()
    for _ in range(9):
        with torch.no_grad():
            model(torch.randn(64, 4))
    (seen,) = watcher.models
    assert (seen.mode, seen.usual.args[0].shape) == ("train", (16, 4))


def test_losses_metrics_and_parts_are_no_models(watcher: Watcher) -> None:
    model = net()
    model(torch.randn(2, 4))
    model[0](torch.randn(2, 4))  # a part of a model that was seen
    nn.MSELoss()(torch.randn(2), torch.randn(2))
    nn.Identity()(torch.randn(2))
    nn.Linear(2, 2)(torch.randn(2, 2, device="meta").new_empty(2, 2, device="cpu"))
    with torch.device("meta"):
        nn.Linear(2, 2)(torch.randn(2, 2))  # has no values: somebody asks for shapes
    machine.measure_speeds()  # placer's own
    assert [seen.name for seen in watcher.models] == ["Sequential", "Linear"]


class ByKeyword(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))

    def forward(self, x: Tensor, scale: Tensor | None = None) -> Tensor:
        return x * self.weight * scale


def test_what_a_model_ran_on_is_seen(watcher: Watcher) -> None:
    model, x = ByKeyword(), torch.randn(16, 4)
    with torch.autocast("cpu", torch.bfloat16):
        for _ in range(4):
            model(x, scale=torch.ones(4))
    with pytest.raises(RuntimeError):
        model(torch.randn(16, 5), scale=torch.ones(4))  # is no run
    (seen,) = watcher.models
    assert seen.usual.kwargs["scale"].shape == (4,)
    assert (seen.usual.count, seen.usual.autocast, seen.usual.data) == (4, torch.bfloat16, "device")


def test_many_models_of_one_architecture_are_one(watcher: Watcher) -> None:
    for _ in range(3):
        train(net(), 2, runs=3)
    (seen,) = watcher.models
    assert (seen.alike, seen.steps, seen.runs_per_step) == (3, 6, 3)


def test_frozen_parts_stay_out_of_the_optimizer(watcher: Watcher) -> None:
    model = net()
    model[0].requires_grad_(False)
    train(model, 2, optimizer=torch.optim.AdamW(model[3].parameters(), weight_decay=0.1))
    (seen,) = watcher.models
    assert seen.optimizer is not None
    assert [tuple(p.shape) for p in seen.optimizer.param_groups[0]["params"]] == [(2, 8), (2,)]


@pytest.fixture
def compile_before() -> Any:
    """``torch.compile`` before the watcher replaces it."""
    return torch.compile


def test_the_first_compilation_ends_the_watching(compile_before: Any, watcher: Watcher) -> None:
    assert torch.compile is not compile_before
    train(net(), 2)
    model = torch.compile(net(9), backend="eager")
    assert not hooks._has_any_global_hook()  # the compiler would read them as a part of the model
    model(torch.randn(16, 4))
    assert watcher.failure == "the script called torch.compile"
    assert [seen.steps for seen in watcher.models] == [2]
    assert torch.compile is compile_before


def test_traced_and_functional_calls_are_left_alone(watcher: Watcher) -> None:
    model = nn.Linear(4, 2)
    traced = torch.jit.trace(model, torch.randn(3, 4))
    assert "aten::linear" in str(traced.graph)
    torch.func.vmap(model)(torch.randn(3, 4))
    torch.fx.symbolic_trace(net())
    assert not [seen for seen in watcher.models if seen.name == "Linear" and seen.refused]
    assert watcher.failure is None


def test_a_failure_of_its_own_ends_the_watching_and_not_the_script(
    watcher: Watcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*given: object) -> None:
        raise KeyError("surprise")

    monkeypatch.setattr(watching, "meta_inputs", broken)
    train(net(), 3)
    assert watcher.failure == "KeyError: 'surprise'"
    assert not hooks._has_any_global_hook()
