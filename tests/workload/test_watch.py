from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from placer.workload.watch import Watch


class Options:
    def __init__(self) -> None:
        self.width = 3
        self.names = ["a", "b"]
        self.more = {"depth": [1, 2]}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.options = Options()
        self.sizes = [8, 8]
        self.pruned: set[int] = set()
        self.block = nn.Sequential(nn.Conv1d(3, 8, 3), nn.BatchNorm1d(8), nn.ReLU())
        self.head = nn.Linear(8, 2)
        self.unlisted = [nn.Linear(2, 2)]
        self.table = torch.ones(4)


def test_what_computing_changes_leaves_a_model_unchanged() -> None:
    model = Net()
    watch = Watch(model)
    assert watch.unchanged(model)
    model.head(model.block(torch.randn(2, 3, 9)).mean(-1)).sum().backward()
    optimizer = torch.optim.Adam(model.parameters())
    optimizer.step()
    model.train()
    model.load_state_dict(model.state_dict())
    with torch.no_grad():
        assert watch.unchanged(model)


@pytest.mark.parametrize("change", [
    lambda m: m.eval(),
    lambda m: m.block[0].eval(),
    lambda m: setattr(m.block[0], "stride", (2,)),
    lambda m: setattr(m.block[0], "new", 1),
    lambda m: setattr(m.block[2], "forward", lambda x: x),
    lambda m: delattr(m.head, "in_features"),
    lambda m: setattr(m.options, "width", 4),
    lambda m: m.options.names.append("c"),
    lambda m: m.options.names.__setitem__(0, "c"),
    lambda m: m.options.more["depth"].append(3),
    lambda m: m.options.more.update(breadth=1),
    lambda m: m.sizes.__setitem__(0, 9),
    lambda m: m.pruned.add(1),
    lambda m: setattr(m.unlisted[0], "out_features", 3),
    lambda m: setattr(m.unlisted[0], "weight", nn.Parameter(torch.ones(2, 2))),
    lambda m: setattr(m.head, "weight", nn.Parameter(m.head.weight.detach().clone())),
    lambda m: setattr(m.head.weight, "data", m.head.weight.data[:1]),
    lambda m: setattr(m.head.weight, "data", m.head.weight.data.t().contiguous().t()),
    lambda m: setattr(m.table, "data", m.table.double()),
    lambda m: m.head.weight.requires_grad_(False),
    lambda m: m.head.half(),
    lambda m: m.block[1].to("meta"),
    lambda m: m.block[1].register_buffer("more", torch.ones(1)),
    lambda m: m.head.register_buffer("first", torch.ones(1)),
    lambda m: m.block[2].register_parameter("first", nn.Parameter(torch.ones(1))),
    lambda m: m.block[2].register_module("inner", nn.ReLU()),
    lambda m: m.block[2].register_forward_hook(lambda *_: None),
    lambda m: m.block[2].register_forward_pre_hook(lambda *_: None),
    lambda m: m.block.append(nn.Tanh()),
    lambda m: m.block.__setitem__(2, nn.ReLU()),
])  # fmt: skip
@pytest.mark.parametrize("collect", [False, True])
def test_every_change_is_noticed(change: Callable[[Any], object], collect: bool) -> None:
    model = Net()
    watch = Watch(model)
    assert watch.unchanged(model)
    change(model)
    if collect:
        gc.collect()  # the parts are gathered anew
    assert not watch.unchanged(model)
    assert not watch.unchanged(model)


def test_a_change_taken_back_may_be_noticed_and_never_does_harm() -> None:
    model = Net()
    watch = Watch(model)
    model.block[0].stride = (2,)
    assert not watch.unchanged(model)
    assert Watch(model).unchanged(model)


def test_the_same_parts_are_found_after_a_collection() -> None:
    model = Net()
    watch = Watch(model)
    gc.collect()
    assert watch.unchanged(model)


def test_a_model_that_refers_to_itself_is_not_kept_alive() -> None:
    model = Net()
    model.block[0].owner = [model]  # type: ignore[assignment]
    watch = Watch(model)
    assert watch.unchanged(model)
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None


def test_a_torchscript_module_never_counts_as_unchanged() -> None:
    scripted = torch.jit.script(nn.ReLU())
    assert not Watch(scripted).unchanged(scripted)


def test_a_model_of_too_many_parts_never_counts_as_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("placer.workload.watch.MAX_PARTS", 3)
    model = Net()
    assert not Watch(model).unchanged(model)
