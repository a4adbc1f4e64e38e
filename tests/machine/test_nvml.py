"""NVML: devices by torch's index, and machines without the driver."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from placer import machine
from placer.machine import nvml


@pytest.mark.parametrize(
    ("visible", "index", "expected"),
    [
        (None, 1, 1), ("", 0, None), ("2,0", 0, 2), ("2,0", 1, 0), ("2,0", 2, None), ("-1", 0, None),
        ("1,-1,0", 1, None), ("1,-1,0", 0, 1), ("GPU-ab,GPU-cd", 1, "GPU-cd"), ("MIG-x", 0, "MIG-x"), (" 3 ", 0, 3),
        ("none", 0, None),
    ],
)  # fmt: skip
def test_cuda_visible_devices(visible: str | None, index: int, expected: int | str | None) -> None:
    assert nvml.visible_device(index, visible) == expected


class FakeNvml:
    """Two boards as NVML would list them; the second one fails to answer."""

    class NVMLError(Exception):
        pass

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        if index > 1:
            raise self.NVMLError
        return index

    def nvmlDeviceGetUUID(self, handle: int) -> bytes:  # noqa: N802
        return [b"GPU-aaaa", b"GPU-bbbb"][handle]

    def nvmlDeviceGetName(self, handle: int) -> bytes | str:  # noqa: N802
        return [b"Board A", "Board B"][handle]

    def nvmlSystemGetDriverVersion(self) -> str:  # noqa: N802
        return "999.1"

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Any:  # noqa: N802
        return SimpleNamespace(total=100 + handle, free=60, used=40)

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> Any:  # noqa: N802
        if handle == 1:
            raise self.NVMLError
        return SimpleNamespace(gpu=37)


def test_nvml_answers_by_torch_index(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "_library", FakeNvml)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-bb,0")
    assert nvml.describe(0) == {"name": "Board B", "memory_bytes": 101, "driver": "999.1"}
    assert nvml.describe(1) == {"name": "Board A", "memory_bytes": 100, "driver": "999.1"}
    assert nvml.describe(2) is None
    assert nvml.memory(1) == (60, 100)
    assert nvml.utilization(0) is None
    assert nvml.utilization(1) == 0.37
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert nvml.describe(5) is None


def test_no_driver_is_normal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "_library", lambda: None)
    assert nvml.describe(0) is None
    assert nvml.memory(0) is None
    assert machine.utilization("cuda") is None
