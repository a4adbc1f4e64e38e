"""Accelerators: which there are, and how they are spelled."""

from __future__ import annotations

import pytest
import torch

from placer import machine
from placer.machine import devices


def test_available_devices_start_with_the_cpu() -> None:
    assert machine.available_devices() == ("cpu", *machine.accelerators())


def test_no_accelerator_however_torch_says_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> torch.device:  # torch 2.6
        raise RuntimeError("Cannot access accelerator device when none is available.")

    for answer in (refuse, lambda: None):
        monkeypatch.setattr(torch.accelerator, "current_accelerator", answer)
        assert machine.available_devices() == ("cpu",)


@pytest.mark.parametrize("bad", ["", "CPU", "cuda:", "cuda:-1", "cuda:1:2", "cpu ", "../cpu", "cuda:9999"])
def test_what_is_not_a_device(bad: str) -> None:
    with pytest.raises(ValueError, match="not a device"):
        machine.split_device(bad)


def test_device_spelling() -> None:
    assert machine.split_device("cuda:1") == ("cuda", 1)
    assert machine.normal_device("cuda:0") == "cuda"
    assert machine.normal_device("cuda:2") == "cuda:2"


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


def test_a_build_for_cuda_does_not_ask_for_the_current_accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch 2.6 asks the driver then, after which no forked process can use CUDA."""

    def asked() -> torch.device:
        raise AssertionError

    monkeypatch.setattr(torch.version, "cuda", "12.4")
    monkeypatch.setattr(torch.accelerator, "current_accelerator", asked)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert machine.accelerators() == ("cuda", "cuda:1")
