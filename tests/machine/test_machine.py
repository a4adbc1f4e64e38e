"""What is said about this machine, and that looking at it leaves no trace."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import joblib
import psutil
import pytest
import torch

from placer import machine
from placer.machine import nvml
from placer.profile import Profile, stale_fields


def test_fingerprint_is_json_and_equals_itself() -> None:
    first, second = machine.fingerprint(), machine.fingerprint()
    assert json.loads(json.dumps(first)) == second
    assert first["torch"] == torch.__version__
    assert first["threads"] == torch.get_num_threads()
    assert [a["device"] for a in first["accelerators"]] == list(machine.accelerators())
    assert first["cpu"].isprintable()
    assert first["cpu"]


def test_a_cpu_is_known_by_more_than_its_name() -> None:
    found = machine.fingerprint()
    assert found["cpu_instructions"] == torch.backends.cpu.get_cpu_capability()
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    models = {line.split(":")[1].strip() for line in lines if line.startswith("model\t")}
    assert all(f"model {number}" in found["cpu_version"] for number in models)


def test_settings_that_change_speed_show_up() -> None:
    before = machine.fingerprint()
    torch.set_num_threads(before["threads"] + 3)
    torch.set_float32_matmul_precision("medium")
    profile = Profile(1, "", before, (), (), {}, (), True, 0.0)
    found = " ".join(stale_fields(profile, machine.fingerprint()))
    assert f"threads: {before['threads']} -> {before['threads'] + 3}" in found
    assert "matmul precision: highest -> medium" in found


@pytest.mark.parametrize("most", [None, "1", "100"])
def test_usable_cores_are_what_joblib_says(most: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    if most is not None:
        monkeypatch.setenv("LOKY_MAX_CPU_COUNT", most)
    assert machine.usable_cores() == joblib.cpu_count()


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no affinity masks here")
def test_cores_a_process_is_kept_from_are_not_usable() -> None:
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        assert machine.usable_cores() == joblib.cpu_count() == 1
    finally:
        os.sched_setaffinity(0, before)


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({"cpu.max": "150000 100000\n"}, 2), ({"cpu.max": "50000 100000\n"}, 1), ({"cpu.max": "max 100000\n"}, None),
        ({"cpu/cpu.cfs_quota_us": "300000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 3),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, None), ({}, None),
    ],
)  # fmt: skip
def test_a_containers_quota_is_a_number_of_cores(
    files: dict[str, str], cores: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    monkeypatch.setattr(machine, "_CGROUP", tmp_path)
    assert machine._container_cores() == cores


def test_usable_cores_and_memory() -> None:
    assert 1 <= machine.usable_cores() <= (psutil.cpu_count() or 1)
    free, total = machine.memory("cpu")
    assert 0 < free <= total <= psutil.virtual_memory().total
    load = machine.utilization("cpu")
    assert load is not None
    assert 0 <= load <= 1


def test_available_devices_start_with_the_cpu() -> None:
    assert machine.available_devices() == ("cpu", *machine.accelerators())


def test_no_accelerator_however_torch_says_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> torch.device:  # torch 2.6
        raise RuntimeError("Cannot access accelerator device when none is available.")

    for answer in (refuse, lambda: None):
        monkeypatch.setattr(torch.accelerator, "current_accelerator", answer)
        assert machine.available_devices() == ("cpu",)


def test_machine_id_is_a_stable_file_name() -> None:
    name = machine.machine_id()
    assert name == machine.machine_id()
    assert Path(name).name == name
    assert name.isascii()


@pytest.mark.parametrize("bad", ["", "CPU", "cuda:", "cuda:-1", "cuda:1:2", "cpu ", "../cpu", "cuda:9999"])
def test_what_is_not_a_device(bad: str) -> None:
    with pytest.raises(ValueError, match="not a device"):
        machine.split_device(bad)


def test_device_spelling() -> None:
    assert machine.split_device("cuda:1") == ("cuda", 1)
    assert machine.normal_device("cuda:0") == "cuda"
    assert machine.normal_device("cuda:2") == "cuda:2"


def test_memory_of_a_device_that_is_not_there() -> None:
    with pytest.raises(ValueError, match="no device 'cuda:77' here; there is cpu"):
        machine.memory("cuda:77")


def test_a_container_limit_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    total = psutil.virtual_memory().total
    monkeypatch.setattr(machine, "_container_memory", lambda: (total // 2, total // 2 - 1000))
    assert machine.memory("cpu") == (1000, total // 2)
    monkeypatch.setattr(machine, "_container_memory", lambda: (total * 2, 0))
    assert machine.memory("cpu")[1] == total


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


@pytest.mark.gpu
def test_looking_creates_no_context() -> None:
    """In a fresh process: afterwards torch is not initialised, and this process holds no memory on the board."""
    code = (
        "import torch, placer.machine as m; f = m.fingerprint(); m.memory('cuda'); m.utilization('cuda');"
        "assert f['accelerators'] and f['accelerators'][0]['name'] != 'cuda', f;"
        "assert not torch.cuda.is_initialized();"
        "import ctypes; active = ctypes.c_int(); flags = ctypes.c_uint(); cuda = ctypes.CDLL('libcuda.so.1');"
        "code = cuda.cuDevicePrimaryCtxGetState(0, ctypes.byref(flags), ctypes.byref(active));"
        "assert not active.value, code; print('clean')"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100, check=False)
    assert result.stdout.strip() == "clean", result.stderr
