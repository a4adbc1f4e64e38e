"""What a step needs of a device's memory, and what it could have."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from placer import machine
from placer.pricing.predict import (
    ALLOCATOR_SHARE,
    CONTEXT_BYTES,
    Residence,
    available_bytes,
    memory_elsewhere,
    needed_bytes,
)
from placer.profile import Device, Profile
from placer.tracing import Trace, trace
from placer.workload import make_workload

CONTEXT = CONTEXT_BYTES["cuda"]
GB = 10**9


def traced(optimizer: str = "adam", rows: int = 1, **settings: object) -> Trace:
    model = nn.Linear(1000, 1000, bias=False)
    kind = getattr(torch.optim, {"adam": "Adam", "sgd": "SGD"}[optimizer])
    return trace(make_workload(model, (rows, 1000), mode="train", optimizer=kind(model.parameters(), **settings)))


@pytest.mark.parametrize(
    ("optimizer", "settings", "copies"),
    [
        ("adam", {}, 1),
        ("adam", {"fused": True}, 0),
        ("adam", {"foreach": False}, 0),
        ("sgd", {"lr": 0.1}, 0),
        ("sgd", {"lr": 0.1, "weight_decay": 0.1}, 1),
    ],
)
def test_an_update_of_all_tensors_at_once_takes_a_copy_of_them(
    optimizer: str, settings: dict[str, object], copies: int
) -> None:
    step = replace(traced(optimizer, **settings).on("cuda"), peak_activation_bytes=0)
    assert needed_bytes(step, "cpu") == step.peak_bytes
    expected = (step.peak_bytes + copies * step.parameter_bytes) * (1 + ALLOCATOR_SHARE)
    assert needed_bytes(step, "cuda") == pytest.approx(expected)
    # By then the activations are gone: whichever is larger counts.
    larger = replace(step, peak_activation_bytes=2 * step.parameter_bytes)
    assert needed_bytes(larger, "cuda") == pytest.approx(larger.peak_bytes * (1 + ALLOCATOR_SHARE))


@pytest.fixture
def fit(monkeypatch: pytest.MonkeyPatch) -> Device:
    """A GPU of 16 GB, 10 of them free, that this process does not use."""
    monkeypatch.setattr(machine, "available_devices", lambda: ("cpu", "cuda", "cuda:1"))
    monkeypatch.setattr(machine, "known_free_memory", lambda device: 10 * GB)
    monkeypatch.setattr(machine, "has_context", lambda device: False)
    return Device("cuda", 1, {"memory_bytes": 16.0 * GB}, {}, {}, {})


def test_what_the_workload_holds_already_is_not_needed_again(fit: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "has_context", lambda device: True)
    assert available_bytes("cuda", fit, Residence()) == 10 * GB
    there = Residence(home="cuda", held={"cuda": 4 * GB})
    assert available_bytes("cuda", fit, there) == 14 * GB
    assert available_bytes("cuda:1", fit, there) == 10 * GB
    cpu = Device("cpu", 2, {}, {}, {}, {})
    assert available_bytes("cpu", cpu, Residence(held={"cpu": 2 * GB})) == 12 * GB


def test_where_only_a_context_could_tell_it_is_all_of_the_memory(fit: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "known_free_memory", lambda device: None)
    assert available_bytes("cuda", fit, Residence()) == 16 * GB - CONTEXT
    assert available_bytes("cuda", replace(fit, rates={}), Residence()) is None


def test_devices_of_other_machines_have_all_of_their_memory(fit: Device, handmade_profile: Profile) -> None:
    there = replace(handmade_profile, fingerprint={"accelerators": [{"device": "cuda", "memory_bytes": 8 * GB}]})
    assert memory_elsewhere(there, fit) == 8 * GB - CONTEXT
    assert memory_elsewhere(there, replace(fit, gpu="Tesla T4")) == 8 * GB  # the catalog has taken it off
    assert memory_elsewhere(there, replace(fit, device="xpu")) is None
    assert available_bytes("xpu", fit, Residence()) is None
