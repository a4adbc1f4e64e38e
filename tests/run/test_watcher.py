"""What the watcher sees, and that the script does not notice it."""

from __future__ import annotations

import gc
import signal
import threading
import weakref
from collections import deque
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import optimizer as optimizers

from placer import machine
from placer.run import watcher as watching
from placer.run.watched import Inputs, WatchedModel
from placer.run.watcher import FIRST_CALLS, Watcher


@pytest.fixture
def watcher(clock: Any) -> Iterator[Watcher]:
    """A watcher that leaves nothing in torch when it stops."""
    before = vars(nn.Module).copy()
    watcher = Watcher(clock)
    watcher.start()
    yield watcher
    watcher.stop()
    assert dict(vars(nn.Module)) == before
    assert not optimizers._global_optimizer_post_hooks


def shapes(seen: WatchedModel) -> list[tuple[int, ...]]:
    """Of the inputs that it ran on most."""
    trace = seen.usual.trace
    assert trace is not None
    return [spec.shape for spec in trace.batch]


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
    assert (seen.steps, seen.runs_per_step, seen.usual.count, seen.usual.data) == (5, 1, 5, "host")
    assert shapes(seen) == [(16, 4)]
    trace = seen.usual.trace
    assert trace is not None
    updates = [call for call in trace.on("cuda").calls if call.op == "optimizer::SGD"]
    assert len(updates) == 6
    assert all(("momentum", True) in call.args for call in updates)
    assert watcher.failure is None


def test_a_model_is_timed_from_its_call_to_the_end_of_the_step(watcher: Watcher, clock: Any) -> None:
    class Slow(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            clock.now += 3.0
            return super().forward(x)

    model = Slow(4, 2)
    optimizer = torch.optim.SGD(model.parameters())
    for _ in range(4):
        clock.now += 10.0  # loads
        model(torch.randn(3, 4)).sum().backward()
        clock.now += 2.0  # is busy in the backward pass
        optimizer.step()
        clock.now += 1.0  # logs
    (seen,) = watcher.models
    assert seen.seconds == 16.0
    assert (seen.loop, seen.inside) == ([16.0] * 3, [5.0] * 3)
    model.eval()
    with torch.no_grad():
        model(torch.randn(3, 4))  # nobody knows when it ends
    train(model, 1, optimizer=optimizer)
    assert len(seen.inside) == 3


def test_only_steps_as_they_are_priced_are_taken_for_real_ones() -> None:
    def steps(device: str, **change: Any) -> list[float]:
        inputs = {0: Inputs(learning=True, autocast=None, plain=True, count=20)}
        usual = {"inputs": inputs, "inside": [1.0] * 20, "ends": deque(range(21)), "looked_steps": 20}
        return WatchedModel("net", device, weakref.ref(nn.Linear(1, 1)), **{**usual, **change}).real_steps

    assert steps("cpu") == steps("cuda:0") == [1.0] * 20
    loads = {"ends": deque(range(0, 42, 2))}  # half of the loop goes by elsewhere
    assert (steps("cpu", **loads), steps("cuda:0", **loads)) == ([1.0] * 20, [])
    sizes = {count: Inputs(learning=True, autocast=None, plain=True, count=count) for count in (20, 5)}
    assert steps("cpu", inputs=sizes) == []
    assert steps("cpu", looked_steps=10) == []  # two runs of it are a step


def test_steps_bring_the_looking_back_for_new_models(watcher: Watcher) -> None:
    train(net(), FIRST_CALLS + 1)
    train(net(9), 4)  # seen at its second call: an optimizer's first step comes after a model's first calls
    train(net(10), 1)
    assert [seen.steps for seen in watcher.models] == [FIRST_CALLS + 1, 4, 1]
    assert [seen.usual.count for seen in watcher.models[1:]] == [3, 1]


def test_a_call_during_another_is_left_alone(watcher: Watcher) -> None:
    class Threaded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.part = net()

        def forward(self, x: Tensor) -> Tensor:
            thread = threading.Thread(target=self.part, args=(x,))
            thread.start()
            thread.join()
            return self.part(x)

    Threaded().eval()(torch.randn(16, 4))
    assert [seen.name for seen in watcher.models] == ["Threaded"]


def test_inference_is_told_from_training(watcher: Watcher) -> None:
    model = net().eval()
    with torch.no_grad():
        model(torch.randn(2, 4))
    (seen,) = watcher.models
    assert seen.mode == "infer"
    model.train()(torch.randn(16, 4))
    assert seen.usual.workload is not None
    assert seen.usual.workload.optimizer == "adam"  # nobody knows better
    train(model, 3)
    model.eval()
    for _ in range(9):
        with torch.no_grad():
            model(torch.randn(64, 4))
    assert (seen.mode, shapes(seen), seen.usual.workload.optimizer) == ("train", [(16, 4)], "sgd")


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


def test_what_a_model_ran_on_is_seen(watcher: Watcher) -> None:
    class ByKeyword(nn.Linear):
        def forward(self, x: Tensor, scale: Tensor) -> Tensor:  # type: ignore[override]
            return super().forward(x) * scale

    model, x = ByKeyword(4, 4), torch.randn(16, 4)
    with torch.autocast("cpu", torch.bfloat16):
        for _ in range(4):
            model(x, scale=torch.ones(4))
    with pytest.raises(RuntimeError):
        model(torch.randn(16, 5), scale=torch.ones(4))
    (seen,) = watcher.models
    assert shapes(seen) == [(16, 4), (4,)]
    assert not seen.usual.plain
    assert (seen.usual.count, seen.usual.autocast, seen.usual.data) == (4, torch.bfloat16, "device")


def test_models_of_one_architecture_are_one_and_an_optimizer_of_two_counts_for_each(watcher: Watcher) -> None:
    for _ in range(3):
        train(net(), 2, runs=3)
    (alike,) = watcher.models
    assert (alike.alike, alike.steps, alike.runs_per_step) == (3, 6, 3)
    first, second = net(9), net(10)
    optimizer = torch.optim.SGD([*first.parameters(), *second.parameters()], lr=0.1, momentum=0.9)
    for _ in range(2):
        (first(torch.randn(16, 4)).sum() + second(torch.randn(16, 4)).sum()).backward()
        optimizer.step()
    for seen in watcher.models[1:]:
        assert seen.steps == 2
        assert seen.usual.trace is not None
        assert [call.op for call in seen.usual.trace.on("cuda").calls].count("optimizer::SGD") == 6
    assert len(optimizer.state) == 12


def test_what_it_takes_to_look_is_no_part_of_a_step(
    watcher: Watcher, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = watcher._look_at

    def slow(*seen: Any) -> None:
        clock.now += 1000.0
        look(*seen)
        clock.now += 1000.0

    def taking_two_seconds(*call: Any) -> None:
        clock.now += 2.0

    monkeypatch.setattr(watcher, "_look_at", slow)
    model = net()
    model.register_forward_hook(taking_two_seconds)
    train(model)
    (seen,) = watcher.models
    assert len(seen.loop) > 2
    assert set(seen.loop) == set(seen.inside) == {2.0}


def test_an_optimizer_that_has_no_hash_is_counted_as_any_other(watcher: Watcher) -> None:
    class Unhashable(torch.optim.SGD):
        __hash__ = None

    model = net()
    train(model, optimizer=Unhashable(model.parameters(), lr=0.1))
    assert watcher.failure is None
    assert watcher.models[0].steps > 0


def test_a_failure_of_its_own_ends_the_watching_and_not_the_script(
    watcher: Watcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Secretive(nn.Sequential):
        def parameters(self, recurse: bool = True) -> Any:
            raise PermissionError("ask the layers")

    model = Secretive(*net())
    before = model[0].weight.detach().clone()
    train(model, optimizer=torch.optim.SGD([*model[0].parameters()], lr=0.1))
    assert not torch.equal(model[0].weight, before)
    assert watcher.failure == "PermissionError: ask the layers"
    assert vars(nn.Module)["_compiled_call_impl"] is None


def test_what_a_signals_handler_raises_reaches_the_script(watcher: Watcher, monkeypatch: pytest.MonkeyPatch) -> None:
    class TooLate(Exception):
        pass

    def passed(number: int, frame: object) -> None:
        raise TooLate

    before = signal.signal(signal.SIGTERM, passed)
    monkeypatch.setattr(watching, "trace", lambda *_: signal.raise_signal(signal.SIGTERM))
    try:
        with pytest.raises(TooLate):
            train(net(), 3)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert watcher.failure is None


def test_a_torch_that_calls_modules_in_another_way_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nn.Module, "_compiled_call_impl", print)
    with pytest.raises(NotImplementedError, match="calls modules in a way that placer does not know"):
        Watcher().start()
