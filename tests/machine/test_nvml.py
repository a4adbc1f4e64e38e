"""NVML: devices by torch's index, machines without the driver, and what the driver says by itself."""

from __future__ import annotations

import sys
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
        ("none", 0, None), ("1,0,1", 0, None), ("GPU-ab,GPU-ab", 1, None),
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


def test_clocks_are_those_that_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    class Clocked(FakeNvml):
        NVML_CLOCK_SM = 1

        def nvmlDeviceGetClockInfo(self, handle: int, kind: int) -> int:  # noqa: N802
            return [1980, 345][handle] * kind

        def nvmlDeviceGetPowerUsage(self, handle: int) -> int:  # noqa: N802
            if handle == 1:
                raise self.NVMLError
            return 310500

        def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: int) -> int:  # noqa: N802
            return 4

    monkeypatch.setattr(nvml, "_library", Clocked)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert machine.gpu_clocks(0) == {"sm_mhz": 1980.0, "power_watts": 310.5, "throttle": 4.0}
    assert machine.gpu_clocks(1) == {"sm_mhz": 345.0, "throttle": 4.0}
    assert machine.gpu_clocks(7) is None
    monkeypatch.setattr(nvml, "_library", FakeNvml)
    assert machine.gpu_clocks(0) is None


@pytest.fixture
def boards(monkeypatch: pytest.MonkeyPatch) -> type[FakeNvml]:
    """NVML's two boards, all of them visible."""
    monkeypatch.setattr(nvml, "_library", FakeNvml)
    for name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"):
        monkeypatch.delenv(name, raising=False)
    return FakeNvml


def test_a_board_whose_memory_is_not_told_keeps_its_name(
    boards: type[FakeNvml], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: FakeNvml, handle: int) -> Any:
        raise FakeNvml.NVMLError

    monkeypatch.setattr(boards, "nvmlDeviceGetMemoryInfo", refuse)
    monkeypatch.setattr(boards, "nvmlDeviceGetCudaComputeCapability", lambda self, _: [12, 1], raising=False)
    assert nvml.describe(0) == {"name": "Board A", "driver": "999.1", "compute_capability": "12.1"}
    assert nvml.memory(0) is None


def test_once_there_is_a_context_the_board_is_found_by_its_uuid(
    boards: type[FakeNvml], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nvml, "_uuid", lambda index: ["bbbb", "aaaa"][index])  # CUDA's number 0 is the faster board
    names = [(nvml.describe(index) or {})["name"] for index in (0, 1)]
    assert names == ["Board B", "Board A"]


def test_boards_of_several_names_have_no_certain_order(boards: type[FakeNvml], monkeypatch: pytest.MonkeyPatch) -> None:
    assert not nvml.order_is_known()
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    assert nvml.order_is_known()
    monkeypatch.delenv("CUDA_DEVICE_ORDER")
    monkeypatch.setattr(boards, "nvmlDeviceGetName", lambda self, handle: "Board A")
    assert nvml.order_is_known()


def test_a_board_that_is_split_is_its_first_instance(boards: type[FakeNvml], monkeypatch: pytest.MonkeyPatch) -> None:
    def instance(self: FakeNvml, handle: int, number: int) -> int:
        if number == 0:
            raise self.NVMLError
        return 1  # with the memory of the second board

    monkeypatch.setattr(boards, "nvmlDeviceGetMigMode", lambda self, handle: [1 - handle, 1], raising=False)
    monkeypatch.setattr(boards, "nvmlDeviceGetMaxMigDeviceCount", lambda self, handle: 7, raising=False)
    monkeypatch.setattr(boards, "nvmlDeviceGetMigDeviceHandleByIndex", instance, raising=False)
    assert nvml.memory(0) == (60, 101)
    monkeypatch.setattr(boards, "nvmlDeviceGetMaxMigDeviceCount", lambda self, handle: 1)
    assert nvml.memory(0) is None  # split, and nothing to use


def test_the_drivers_version_of_cuda(boards: type[FakeNvml], monkeypatch: pytest.MonkeyPatch) -> None:
    assert nvml.cuda_version() is None
    monkeypatch.setattr(boards, "nvmlSystemGetCudaDriverVersion", lambda self: 12040, raising=False)
    assert nvml.cuda_version() == (12, 4)


def refuses(*_: Any) -> Any:
    raise FakeNvml.NVMLError("Not Supported")


def driver(**answers: Any) -> SimpleNamespace:
    usual = {
        "NVMLError": FakeNvml.NVMLError,
        "nvmlInit": lambda: None,
        "nvmlSystemGetDriverVersion": lambda: b"580.65",
        "nvmlSystemGetCudaDriverVersion": lambda: 13000,
        "nvmlDeviceGetCount": lambda: 2,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetName": lambda handle: ["Tesla T4", "NVIDIA GB10"][handle],
        "nvmlDeviceGetMemoryInfo": lambda handle: refuses() if handle else SimpleNamespace(total=16),
        "nvmlDeviceGetCudaComputeCapability": lambda handle: (7, 5) if handle == 0 else (12, 1),
    }
    return SimpleNamespace(**{**usual, **answers})


def test_all_gpus_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setitem(sys.modules, "pynvml", driver())
    assert machine.describe_driver() == {
        "driver": "580.65", "cuda": "13.0",
        "gpus": [
            {"name": "Tesla T4", "memory_bytes": 16, "compute_capability": "7.5"},
            {"name": "NVIDIA GB10", "memory_bytes": 0, "compute_capability": "12.1"},
        ],
    }  # fmt: skip


def test_a_driver_that_answers_little(monkeypatch: pytest.MonkeyPatch) -> None:
    questions = ("nvmlSystemGetDriverVersion", "nvmlSystemGetCudaDriverVersion", "nvmlDeviceGetCount")
    silent = driver(**dict.fromkeys(questions, refuses))
    monkeypatch.setitem(sys.modules, "pynvml", silent)
    assert machine.describe_driver() == {"driver": "", "cuda": "", "gpus": []}
    monkeypatch.setitem(sys.modules, "pynvml", driver(nvmlDeviceGetCount=lambda: 1, nvmlDeviceGetHandleByIndex=refuses))
    assert machine.describe_driver()["gpus"] == [{"name": "", "memory_bytes": 0, "compute_capability": ""}]


def test_nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", driver(nvmlInit=refuses))
    assert machine.describe_driver() == {"error": "Not Supported"}
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert machine.describe_driver() == {"error": "the package nvidia-ml-py is not installed"}
