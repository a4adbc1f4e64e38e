from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_sequence
from torch.utils.data import DataLoader, TensorDataset

from placer import machine
from placer.answer import Placement
from placer.decision import history
from placer.decision.decision import Decision, decide
from placer.errors import PlacerError
from placer.placement import step_times as module
from placer.placement.moving import move, move_modules, move_optimizer, same_device
from placer.placement.step_times import StepTimes
from placer.pricing.prediction import Prediction

# The meta device stands in for an accelerator: tensors really change device, without one.
META = torch.device("meta")


def placed(device: str) -> Placement:
    return Placement(Decision(device, 2, 0.9, f"{device}: because"))


def test_attributes_come_from_the_decision(make_prediction: Callable[..., Prediction]) -> None:
    predictions = {"cpu": make_prediction("cpu", 1e-3), "cuda": make_prediction("cuda", 2e-3)}
    decision = decide(predictions, None)
    placement = Placement(decision, predictions)
    assert placement.device == "cpu"
    assert placement.predictions[placement.device].step_seconds == 1e-3
    assert (placement.threads, placement.confidence) == (2, decision.confidence)
    assert (placement.reason, placement.decision) == (decision.reason, decision)
    assert "cpu" in repr(placement)


def test_to_moves_every_tensor_of_a_nest_and_nothing_else() -> None:
    Pair = namedtuple("Pair", ["x", "label"])

    @dataclass
    class Item:
        x: torch.Tensor
        name: str

    t = torch.ones(2)
    moved = placed("meta").to({"a": [t, 3], "b": Pair(t, "cat"), "c": Item(t, "dog"), "d": (None, {1, 2})})
    assert moved["a"][0].device == moved["b"].x.device == moved["c"].x.device == META
    assert (moved["a"][1], moved["b"].label, moved["c"].name, moved["d"]) == (3, "cat", "dog", (None, {1, 2}))
    assert t.device.type == "cpu"
    packed = placed("meta").to(pack_sequence([torch.ones(3, 2)]))
    assert isinstance(packed, PackedSequence)
    assert packed.data.device == META


def test_what_is_there_already_is_not_copied() -> None:
    t = torch.ones(2)
    batch = {"x": t, "packed": pack_sequence([torch.ones(3, 2)])}
    assert placed("cpu").to(batch) is batch


def test_batches_leaves_the_loader_alone_on_the_cpu() -> None:
    loader = DataLoader(TensorDataset(torch.ones(4, 2)), batch_size=2)
    assert placed("cpu").batches(loader) is loader


def test_batches_moves_and_can_be_repeated() -> None:
    loader = DataLoader(TensorDataset(torch.ones(4, 2), torch.ones(4)), batch_size=2)
    batches: Any = placed("meta").batches(loader)
    for _ in range(2):
        assert [x.device for x, _ in batches] == [META, META]
    assert len(batches) == 2
    assert batches.dataset is loader.dataset
    assert [x.device for x in placed("meta").batches(iter([torch.ones(1)]))] == [META]


def test_optimizer_state_follows_and_groups_stay() -> None:
    model = nn.Linear(2, 2)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    parameters = [id(p) for g in optimizer.param_groups for p in g["params"]]
    step = optimizer.state[model.weight]["step"]
    move_optimizer(optimizer, META)
    state = optimizer.state[model.weight]
    assert state["exp_avg"].device == state["exp_avg_sq"].device == META
    assert state["step"] is step  # a counter the host reads stays on the host
    assert [id(p) for g in optimizer.param_groups for p in g["params"]] == parameters


def test_optimizer_without_state_is_left_alone() -> None:
    optimizer = torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=0.1)
    move_optimizer(optimizer, META)
    assert len(optimizer.state) == 0


@pytest.mark.gpu
def test_training_continues_on_the_accelerator_with_the_same_parameter_objects() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.randn(8, 4)).sum().backward()
    optimizer.step()
    before = list(model.parameters())
    device = torch.device(machine.accelerators()[0])
    move_modules([model], device)
    move_optimizer(optimizer, device)
    assert all(a is b for a, b in zip(before, model.parameters(), strict=True))
    model(torch.randn(8, 4, device=device)).sum().backward()
    optimizer.step()
    assert {t.device.type for t in (*model.parameters(), *model.buffers())} == {device.type}


def test_modules_on_the_device_are_not_touched() -> None:
    calls: list[object] = []

    class Watched(nn.Linear):
        def _apply(self, *args: Any, **kwargs: Any) -> Any:
            calls.append(args)
            return super()._apply(*args, **kwargs)

    watched = Watched(2, 2)
    move_modules([watched], torch.device("cpu"))
    assert calls == []
    move_modules([watched], META)
    assert watched.weight.device == META


def test_move_keeps_shared_modules() -> None:
    model = nn.Linear(2, 2)
    assert move(model, torch.device("cpu")) is model


def test_device_names_are_compared_without_a_context() -> None:
    assert same_device(torch.device("cuda"), torch.device("cuda:0"))
    assert not same_device(torch.device("cuda"), torch.device("cuda:1"))
    assert not same_device(torch.device("cuda"), torch.device("cpu"))
    assert same_device(torch.device("cpu"), torch.device("cpu:0"))
    assert not torch.cuda.is_initialized()


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_step_records_real_times_after_warm_up() -> None:
    clock = Clock()
    times = StepTimes("cpu", clock=clock)
    assert times.median() is None
    for seconds in (9.0, 9.0, 9.0, 1.0, 2.0, 3.0):
        with times.step():
            clock.now += seconds
    assert list(times.recent) == [1.0, 2.0, 3.0]
    assert times.median() == 2.0
    assert times.seen == 6


def test_step_times_reach_the_history_at_a_low_rate() -> None:
    clock = Clock()
    times = StepTimes("cpu", predicted_seconds=0.4, clock=clock)
    for _ in range(203):
        with times.step():
            clock.now += 0.5
    entries = [entry for entry in history.last(100) if entry["kind"] == "steps"]
    assert len(entries) == 4  # 100 seconds: after 1 s, then every 30 s
    assert (entries[0]["step_seconds"], entries[0]["predicted_seconds"]) == (0.5, 0.4)


def test_a_step_that_raises_is_not_recorded() -> None:
    times = StepTimes("cpu", clock=Clock())
    for _ in range(5):
        with pytest.raises(RuntimeError, match="mine"), times.step():
            raise RuntimeError("mine")
    assert len(times.recent) == 0


def test_an_accelerator_is_waited_for_rarely(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[str] = []
    monkeypatch.setattr(module, "synchronize", waits.append)
    times = StepTimes("cuda", clock=Clock())
    for _ in range(2 * module.SYNC_EVERY):
        with times.step():
            pass
    assert len(times.recent) == 2
    assert len(waits) == 4


def test_explain_without_a_prediction_says_why() -> None:
    with pytest.raises(PlacerError, match="no prediction to explain: cpu: because"):
        placed("cpu").explain()
