"""Moving: nests of tensors, modules and optimizer state, each thing once."""
from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_sequence

from placer import machine
from placer.placement.moving import move, move_modules, move_optimizer, only_device, same_device, target

# The meta device stands in for an accelerator: tensors really change device, without one.
META = torch.device("meta")


def test_what_is_there_already_is_not_copied() -> None:
    t = torch.ones(2)
    batch = {"x": t, "packed": pack_sequence([torch.ones(3, 2)])}
    assert move(batch, torch.device("cpu")) is batch


def test_a_batch_that_moves_itself_comes_back_and_is_asked_only_where_it_is_elsewhere() -> None:
    class Points:
        def __init__(self) -> None:
            self.fields = {"x": torch.ones(2), "y": torch.ones(3)}
            self.asked: list[Any] = []

        def to(self, device: torch.device) -> None:
            self.asked.append(device)
            for name, tensor in self.fields.items():
                self.fields[name] = tensor.to(device)

    points = Points()
    assert move([points], torch.device("cpu"))[0] is points
    assert points.asked == []
    assert move([points], META)[0] is points
    assert {tensor.device for tensor in points.fields.values()} == {META}


def test_a_module_is_moved_however_deep_it_is() -> None:
    model = nn.Sequential(nn.Linear(2, 2, device="meta"), nn.Linear(2, 2))
    for _ in range(20):
        model = nn.Sequential(model)
    assert move(model, META) is model
    assert only_device([model]) == META


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


def test_a_name_of_a_profile_is_one_device_whichever_is_the_current_one() -> None:
    assert target("cuda") == torch.device("cuda", 0)
    assert target("cuda:2") == torch.device("cuda", 2)
    assert target("cpu") == torch.device("cpu")
    assert target("mps") == torch.device("mps")


def test_one_device_holds_all_or_none_is_the_only_one() -> None:
    here, there = nn.BatchNorm1d(2), nn.Linear(2, 2, device="meta")
    assert only_device([here]) == torch.device("cpu")
    assert only_device([there, there]) == META
    assert only_device([here, there]) is None
    assert only_device([nn.ReLU()]) is None
    here.running_mean = torch.zeros(2, device="meta")  # a buffer counts
    assert only_device([here]) is None


def test_a_copy_of_pageable_memory_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []
    real = torch.Tensor.to
    monkeypatch.setattr(
        torch.Tensor, "to", lambda self, *a, non_blocking: (asked.append(non_blocking), real(self, *a))[1]
    )  # fmt: skip
    for pinned in (False, True):
        monkeypatch.setattr(torch.Tensor, "is_pinned", lambda _, is_so=pinned: is_so)
        assert move(torch.ones(2), META, non_blocking=True).device == META
        move(torch.ones(2), META)
    assert asked == [False, False, True, False]


def test_counters_of_a_fused_optimizer_go_with_its_state() -> None:
    model = nn.Linear(2, 2)
    optimizer = torch.optim.Adam(model.parameters())
    optimizer.state[model.weight] = {"step": torch.ones(()), "exp_avg": torch.ones(2, 2)}
    optimizer.param_groups[0]["capturable"] = True
    move_optimizer(optimizer, META)
    assert {value.device for value in optimizer.state[model.weight].values()} == {META}
    beside = torch.optim.Adam(nn.Linear(2, 2, device="meta").parameters())
    parameter = beside.param_groups[0]["params"][0]
    beside.state[parameter] = {"exp_avg": torch.ones(2, 2)}
    move_optimizer(beside)  # next to its parameters
    assert beside.state[parameter]["exp_avg"].device == META
