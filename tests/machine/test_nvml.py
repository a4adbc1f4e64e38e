"""NVML: devices by torch's index, machines without the driver, and what the driver says by itself."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from placer import machine
from placer.machine import nvml

VISIBLE = [
    (None, 1, 1), ("", 0, None), ("2,0", 0, 2), ("2,0", 1, 0), ("2,0", 2, None), ("-1", 0, None), ("1,-1,0", 1, None),
    ("1,-1,0", 0, 1), ("GPU-ab,GPU-cd", 1, "GPU-cd"), ("MIG-x", 0, "MIG-x"), (" 3 ", 0, 3), ("none", 0, None),
    ("1,0,1", 0, None), ("GPU-ab,GPU-ab", 1, None),
]  # fmt: skip


@pytest.mark.parametrize(("visible", "index", "expected"), VISIBLE)
def test_cuda_visible_devices(visible: str | None, index: int, expected: int | str | None) -> None:
    assert nvml.visible_device(index, visible) == expected


class NVMLError(Exception):
    pass


def answer(*by_board: Any) -> Any:
    """Answers by the handle of a board; an error in place of an answer is raised."""

    def answered(handle: int, *_: Any) -> Any:
        if handle >= len(by_board) or isinstance(by_board[handle], Exception):
            raise NVMLError("Not Supported")
        return by_board[handle]

    return answered


def refuse(*_: Any) -> Any:
    raise NVMLError("Not Supported")


def board(total: int) -> Any:
    return SimpleNamespace(total=total, free=60, used=40)


#: Two boards as NVML lists them.
ANSWERS: dict[str, Any] = {
    "NVMLError": NVMLError,
    "nvmlInit": lambda: None,
    "nvmlSystemGetDriverVersion": lambda: "999.1",
    "nvmlDeviceGetCount": lambda: 2,
    "nvmlDeviceGetHandleByIndex": answer(0, 1),
    "nvmlDeviceGetUUID": answer("GPU-aaaa", "GPU-bbbb"),
    "nvmlDeviceGetName": answer("Board A", "Board B"),
    "nvmlDeviceGetMemoryInfo": answer(board(100), board(101)),
    "nvmlDeviceGetUtilizationRates": answer(SimpleNamespace(gpu=37), NVMLError()),
}


@pytest.fixture
def boards(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """NVML's two boards, all of them visible; a test changes an answer by setting it."""
    library = SimpleNamespace(**ANSWERS)
    monkeypatch.setattr(nvml, "_loaded", lambda: (library, ""))
    for name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"):
        monkeypatch.delenv(name, raising=False)
    return library


def test_nvml_answers_by_torch_index(boards: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-bb,0")
    assert nvml.describe(0) == {"name": "Board B", "memory_bytes": 101, "driver": "999.1"}
    assert nvml.describe(1) == {"name": "Board A", "memory_bytes": 100, "driver": "999.1"}
    assert nvml.describe(2) is None
    assert nvml.memory(1) == (60, 100)
    assert (nvml.utilization(0), nvml.utilization(1)) == (None, 0.37)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert nvml.describe(5) is None
    assert nvml.cuda_version() is None
    boards.nvmlSystemGetCudaDriverVersion = lambda: 12040
    assert nvml.cuda_version() == (12, 4)
    # A board whose memory is not told keeps its name.
    boards.nvmlDeviceGetMemoryInfo = refuse
    boards.nvmlDeviceGetCudaComputeCapability = answer([12, 1])
    assert nvml.describe(0) == {"name": "Board A", "driver": "999.1", "compute_capability": "12.1"}
    assert nvml.memory(0) is None


def test_no_driver_is_normal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "_loaded", lambda: (None, "no driver"))
    assert nvml.describe(0) is nvml.memory(0) is machine.utilization("cuda") is None
    assert nvml.order_is_known()


def test_once_there_is_a_context_the_board_is_found_by_its_uuid(
    boards: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nvml, "_uuid", lambda index: ["bbbb", "aaaa"][index])  # CUDA's number 0 is the faster board
    assert [(nvml.describe(index) or {})["name"] for index in (0, 1)] == ["Board B", "Board A"]


SILENT = ("nvmlSystemGetDriverVersion", "nvmlSystemGetCudaDriverVersion", "nvmlDeviceGetCount")
CAPABLE = {
    "nvmlSystemGetCudaDriverVersion": lambda: 13000,
    "nvmlDeviceGetCudaComputeCapability": answer((7, 5), (12, 1)),
    "nvmlDeviceGetMemoryInfo": answer(board(16), NVMLError()),
}
GPUS = [
    {"name": "Board A", "memory_bytes": 16, "compute_capability": "7.5"},
    {"name": "Board B", "memory_bytes": 0, "compute_capability": "12.1"},
]


@pytest.mark.parametrize(
    ("answers", "driver"),
    [
        (CAPABLE, {"driver": "999.1", "cuda": "13.0", "gpus": GPUS}),
        (dict.fromkeys(SILENT, refuse), {"driver": "", "cuda": "", "gpus": []}),
        ({"nvmlInit": refuse}, {"error": "Not Supported"}),
        (None, {"error": "the package nvidia-ml-py is not installed"}),
    ],
)
def test_what_the_driver_says_of_all_gpus_of_the_machine(
    answers: dict[str, Any] | None, driver: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    library = None if answers is None else SimpleNamespace(**{**ANSWERS, **answers})
    monkeypatch.setitem(sys.modules, "pynvml", library)
    monkeypatch.setattr(nvml, "_loaded", nvml._loaded.__wrapped__)
    assert machine.describe_driver() == driver
