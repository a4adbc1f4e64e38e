"""Free and total memory of devices and containers."""

from __future__ import annotations

import psutil
import pytest

from placer import machine
from placer.machine import device_memory


def test_usable_cores_and_memory() -> None:
    assert 1 <= machine.usable_cores() <= (psutil.cpu_count() or 1)
    free, total = machine.memory("cpu")
    assert 0 < free <= total <= psutil.virtual_memory().total
    load = machine.utilization("cpu")
    assert load is not None
    assert 0 <= load <= 1


def test_memory_of_a_device_that_is_not_there() -> None:
    with pytest.raises(ValueError, match="no device 'cuda:77' here; there is cpu"):
        machine.memory("cuda:77")


def test_a_container_limit_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    total = psutil.virtual_memory().total
    monkeypatch.setattr(device_memory, "_container_memory", lambda: (total // 2, total // 2 - 1000))
    assert machine.memory("cpu") == (1000, total // 2)
    monkeypatch.setattr(device_memory, "_container_memory", lambda: (total * 2, 0))
    assert machine.memory("cpu")[1] == total


def test_nothing_is_told_of_a_device_whose_driver_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(device: str) -> tuple[int, int]:
        raise RuntimeError("the device does not support querying its free memory")

    monkeypatch.setattr(device_memory, "memory", broken)
    monkeypatch.setattr(device_memory.devices, "has_context", lambda device: True)
    assert machine.known_free_memory("xpu") is None
