"""Accelerators: which there are, how they are spelled, which of them torch can use; and the memory of devices."""

from __future__ import annotations

import pytest
import torch

from placer import machine
from placer.machine import devices, nvml
from placer.machine.devices import runs_on, unsupported


@pytest.mark.parametrize("bad", ["", "CPU", "cuda:", "cuda:-1", "cuda:1:2", "cpu ", "../cpu", "cuda:9999"])
def test_what_is_not_a_device(bad: str) -> None:
    with pytest.raises(ValueError, match="not a device"):
        machine.split_device(bad)


def test_device_spelling() -> None:
    assert machine.split_device("cuda:1") == ("cuda", 1)
    assert [machine.normal_device(name) for name in ("cuda:0", "cuda:2")] == ["cuda", "cuda:2"]


class Module:
    """Of a kind of accelerator, as torch has them: three devices, of which this process uses some."""

    def __init__(self, current: int = 0, reserved: tuple[int, ...] = (0, 0, 0), allocated: int = 0) -> None:
        self.current, self.reserved, self.allocated = current, reserved, allocated
        self.initialized = True

    def is_initialized(self) -> bool:
        return self.initialized

    def current_device(self) -> int:
        assert self.initialized, "asking for the current device creates a context"
        return self.current

    def memory_reserved(self, index: int) -> int:
        return self.reserved[index]

    def memory_allocated(self, index: int) -> int:
        return self.allocated

    def mem_get_info(self, index: int) -> tuple[int, int]:
        return 1000, 5000

    def device_count(self) -> int:
        return 3


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> Module:
    module = Module()
    monkeypatch.setattr(torch, "fast", module, raising=False)
    return module


def test_a_process_uses_the_current_device_and_those_that_hold_its_tensors(fast: Module) -> None:
    assert [machine.has_context(name) for name in ("fast", "fast:1", "fast:2")] == [True, False, False]
    fast.current, fast.reserved = 1, (0, 0, 7)
    assert [machine.has_context(name) for name in ("fast", "fast:1", "fast:2")] == [False, True, True]
    assert machine.current_device("fast") == "fast:1"
    fast.initialized = False
    assert not machine.has_context("fast:2")
    assert machine.current_device("fast") == "fast"
    assert machine.current_device("no_such_kind") == "no_such_kind"


def test_what_the_allocator_keeps_unused_is_free(fast: Module, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "accelerators", lambda: ("fast", "fast:1", "fast:2"))
    monkeypatch.setattr(torch, "get_device_module", lambda device: fast)
    fast.reserved, fast.allocated = (700, 0, 0), 300
    assert machine.known_free_memory("fast") == 1000 + 700 - 300
    assert machine.known_free_memory("fast:1") is None  # no context there: only one could tell
    fast.initialized = False
    assert machine.known_free_memory("fast") is None


def test_memory_of_a_device_that_is_not_there() -> None:
    with pytest.raises(ValueError, match="no device 'cuda:77' here; there is cpu"):
        machine.memory("cuda:77")


def test_nothing_is_told_of_a_device_whose_driver_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(device: str) -> tuple[int, int]:
        raise RuntimeError("the device does not support querying its free memory")

    monkeypatch.setattr(devices, "memory", broken)
    monkeypatch.setattr(devices, "has_context", lambda device: True)
    assert machine.known_free_memory("xpu") is None


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
