"""The rule of every training script, and models that have no choice."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from placer import machine
from placer.decision import candidates
from placer.decision.candidates import conventional, movable_devices, rough_memory
from placer.pricing import Residence
from placer.workload import Workload, make_workload


@pytest.fixture
def workload() -> Workload:
    return make_workload(nn.Linear(10, 10), (4, 10), mode="infer")


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> dict[str, int | None]:
    """A machine with two accelerators, and what is free of their memory."""
    memory: dict[str, int | None] = {"cuda": 10**9, "cuda:1": 10**9}
    monkeypatch.setattr(machine, "available_devices", lambda: ("cpu", *memory))
    monkeypatch.setattr(machine, "describe_accelerators", list)
    monkeypatch.setattr(machine, "known_free_memory", memory.get)
    monkeypatch.setattr(machine, "has_context", lambda _: False)
    monkeypatch.setattr(machine, "current_device", lambda kind: kind)
    return memory


def chosen(workload: Workload, devices: tuple[str, ...] | None = None) -> tuple[str, str]:
    found = conventional(workload, devices, "why")
    assert (found.confidence, found.threads) == (None, torch.get_num_threads())
    return found.device, found.reason


def test_an_accelerator_is_taken_where_the_model_fits(workload: Workload, free: dict[str, int | None]) -> None:
    assert chosen(workload) == ("cuda", "cuda: by convention, as an accelerator is present (why)")
    free["cuda"] = 100  # the next one may have room
    assert chosen(workload)[0] == "cuda:1"
    free["cuda:1"] = 439
    assert chosen(workload) == ("cpu", "cpu: by convention, as the model does not fit on the accelerator (why)")
    free["cuda:1"] = 440
    assert chosen(workload)[0] == "cuda:1"
    free["cuda"] = None  # the move will tell
    assert chosen(workload)[0] == "cuda"


def test_only_what_was_asked_for_is_taken(workload: Workload, free: dict[str, int | None]) -> None:
    assert chosen(workload, ("cpu",)) == ("cpu", "cpu: by convention, as no accelerator is present (why)")
    assert chosen(workload, ("cuda:1",))[0] == "cuda:1"
    free["cuda:1"] = 0
    assert chosen(workload, ("cuda:1",))[0] == "cuda:1"  # there is nothing else


def test_what_a_model_holds_already_is_room(
    workload: Workload, free: dict[str, int | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    free["cuda"], free["cuda:1"] = 100, 100
    monkeypatch.setattr(candidates, "residence", lambda *_: Residence(home="cuda:1", held={"cuda:1": 340}))
    assert chosen(workload)[0] == "cuda:1"


def test_one_that_cannot_be_used_is_none(
    workload: Workload, free: dict[str, int | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(candidates, "unusable", lambda name, _: "too old" if name == "cuda" else None)
    assert chosen(workload)[0] == "cuda:1"
    assert chosen(workload, ("cpu", "cuda"))[1] == "cpu: by convention, as cuda cannot be used: too old (why)"


def test_a_bound_model_stays_unless_others_were_asked_for(
    workload: Workload, free: dict[str, int | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert movable_devices(workload.modules, None) == (None, ())
    assert movable_devices(workload.modules, ["cpu", "cuda"]) == (("cpu", "cuda"), ())
    monkeypatch.setattr(candidates, "anchor", lambda _: ("cpu", "it is quantized"))
    told = "not to be moved: it is quantized"
    for asked in (None, ["cuda", "cpu"]):
        assert movable_devices(workload.modules, asked) == (("cpu",), (told,))
    assert movable_devices(workload.modules, ["cuda"]) == (("cuda",), ())
    assert chosen(workload) == ("cpu", f"cpu: {told} (why)")


def test_training_takes_four_times_the_memory_and_tied_weights_none() -> None:
    first, second = (nn.Linear(10, 10, bias=False) for _ in range(2))
    model = nn.Sequential(first, second, nn.BatchNorm1d(10, affine=False))
    second.weight = first.weight
    held = 400 + 2 * 40 + 8
    assert rough_memory(make_workload(model, (4, 10), mode="infer")) == held
    assert rough_memory(make_workload(model, (4, 10), mode="train", optimizer="sgd")) == 4 * held
    assert rough_memory(make_workload(nn.LazyLinear(3), (4, 10), mode="infer")) == 0
