"""Accelerators: which there are, how they are spelled, which of them torch can use; and the memory of devices."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from placer import machine
from placer.machine import devices, nvml
from placer.machine.devices import runs_on, unsupported


@pytest.mark.parametrize("bad", ["", "CPU", "cuda:", "cuda:-1", "cuda:1:2", "cpu ", "../cpu", "cuda:9999"])
def test_device_spelling(bad: str) -> None:
    with pytest.raises(ValueError, match="not a device"):
        machine.split_device(bad)
    assert machine.split_device("cuda:1") == ("cuda", 1)
    assert [machine.normal_device(name) for name in ("cuda:0", "cuda:2")] == ["cuda", "cuda:2"]


def test_a_process_uses_the_current_device_and_those_that_hold_its_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    """What torch's allocator keeps there unused counts as free. Nobody can tell of others, and of a broken driver."""
    fast = SimpleNamespace(
        is_initialized=lambda: True,
        current_device=lambda: 1,
        memory_reserved=(0, 0, 700, 0).__getitem__,
        memory_allocated=(0, 0, 300, 0).__getitem__,
        mem_get_info=lambda index: (1000, 5000),
    )
    monkeypatch.setattr(torch, "fast", fast, raising=False)
    monkeypatch.setattr(torch, "get_device_module", lambda device: fast)
    names = ("fast", "fast:1", "fast:2", "fast:3")
    monkeypatch.setattr(devices, "accelerators", lambda: names)
    assert [machine.has_context(name) for name in names] == [False, True, True, False]
    assert [machine.known_free_memory(name) for name in names] == [None, 1000, 1000 + 700 - 300, None]
    assert [machine.current_device(kind) for kind in ("fast", "no_such_kind")] == ["fast:1", "no_such_kind"]

    def broken(index: int | None = None) -> None:
        raise RuntimeError("asking for the current device creates a context; the driver does not answer")

    fast.mem_get_info = broken
    assert machine.known_free_memory("fast:2") is None
    fast.is_initialized, fast.current_device = lambda: False, broken
    assert not machine.has_context("fast:2")
    assert machine.current_device("fast") == "fast"


GPU = {"device": "cuda", "name": "A", "memory_bytes": 8 * 2**30, "compute_capability": "8.6"}


@pytest.mark.parametrize(
    ("capability", "architectures", "runs"),
    [
        ("8.6", "sm_80 sm_90", True),  # machine code of an earlier minor version
        ("8.0", "sm_86", False),
        ("6.1", "sm_75 sm_80 sm_90 compute_90", False),
        ("12.1", "sm_80 compute_90", True),  # compiled when it is loaded
        ("9.0", "sm_90a", True),
        ("9.0", "sm_80 sm_100f", False),
        ("10.3", "sm_100f", True),
        ("10.3", "sm_100a", False),
        ("7.0", "gfx90a", True),  # nothing is known of such names
    ],
)
def test_what_code_runs_on(capability: str, architectures: str, runs: bool) -> None:
    assert runs_on(capability, architectures.split()) is runs


def test_what_versions_tell_of_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    assert unsupported({"device": "cuda", "name": "A"}) is None
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch._C, "_cuda_getArchFlags", lambda: "sm_75 sm_80 sm_90", raising=False)
    monkeypatch.setattr(nvml, "cuda_version", lambda: (13, 1))
    assert unsupported(GPU) is None
    assert unsupported({**GPU, "compute_capability": "7.0"}) == "this torch has no kernels for compute capability 7.0"
    monkeypatch.setattr(nvml, "cuda_version", lambda: (12, 4))
    assert unsupported(GPU) == "its driver runs CUDA 12.4, and this torch needs CUDA 13"
    monkeypatch.setattr(nvml, "cuda_version", lambda: None)
    assert unsupported(GPU) is None
