"""What the driver says by itself, and why it says nothing."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from placer import machine


class NVMLError(Exception):
    pass


def refuses(*_: Any) -> Any:
    raise NVMLError("Not Supported")


def nvml(**answers: Any) -> SimpleNamespace:
    usual = {
        "NVMLError": NVMLError,
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
    monkeypatch.setitem(sys.modules, "pynvml", nvml())
    assert machine.describe_driver() == {
        "driver": "580.65", "cuda": "13.0",
        "gpus": [
            {"name": "Tesla T4", "memory_bytes": 16, "compute_capability": "7.5"},
            {"name": "NVIDIA GB10", "memory_bytes": 0, "compute_capability": "12.1"},
        ],
    }  # fmt: skip


def test_a_driver_that_answers_little(monkeypatch: pytest.MonkeyPatch) -> None:
    questions = ("nvmlSystemGetDriverVersion", "nvmlSystemGetCudaDriverVersion", "nvmlDeviceGetCount")
    silent = nvml(**dict.fromkeys(questions, refuses))
    monkeypatch.setitem(sys.modules, "pynvml", silent)
    assert machine.describe_driver() == {"driver": "", "cuda": "", "gpus": []}
    monkeypatch.setitem(sys.modules, "pynvml", nvml(nvmlDeviceGetCount=lambda: 1, nvmlDeviceGetHandleByIndex=refuses))
    assert machine.describe_driver()["gpus"] == [{"name": "", "memory_bytes": 0, "compute_capability": ""}]


def test_nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", nvml(nvmlInit=refuses))
    assert machine.describe_driver() == {"error": "Not Supported"}
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert machine.describe_driver() == {"error": "the package nvidia-ml-py is not installed"}
