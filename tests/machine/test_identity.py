"""The CPU's usable cores, names for it and for the machine, and the fingerprint: what step times depend on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import joblib
import pytest
import torch

from placer import machine
from placer.machine import cpu


@pytest.mark.parametrize("most", [None, "1", "100"])
@pytest.mark.parametrize("pinned", [False, True])
def test_usable_cores_are_what_joblib_says(most: str | None, pinned: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cores that a process is kept from are not usable."""
    if pinned and not hasattr(os, "sched_setaffinity"):
        pytest.skip("no affinity masks here")
    if most is not None:
        monkeypatch.setenv("LOKY_MAX_CPU_COUNT", most)
    if not pinned:
        assert machine.usable_cores() == joblib.cpu_count()
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        assert machine.usable_cores() == joblib.cpu_count() == 1
    finally:
        os.sched_setaffinity(0, before)


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({"cpu.max": "150000 100000\n"}, 2),
        ({"cpu.max": "50000 100000\n"}, 1),
        ({"cpu.max": "max 100000\n"}, 8),
        ({"cpu/cpu.cfs_quota_us": "300000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 3),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, 8),
        ({}, 8),
    ],
)
def test_a_containers_quota_is_a_number_of_cores(
    files: dict[str, str], cores: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    monkeypatch.setattr(cpu, "CGROUP", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(8)), raising=False)
    assert machine.usable_cores() == cores


def test_the_fingerprint_is_json_and_follows_torchs_settings() -> None:
    assert Path(machine.machine_id()).name == machine.machine_id()
    assert machine.machine_id().isascii()
    first = machine.fingerprint()
    assert json.loads(json.dumps(first)) == machine.fingerprint()
    assert first["torch"] == torch.__version__
    assert [a["device"] for a in first["accelerators"]] == list(machine.accelerators())
    assert first["cpu"].isprintable()
    assert first["cpu"]
    torch.set_num_threads(first["threads"] + 3)
    torch.set_float32_matmul_precision("medium")
    changed = machine.fingerprint()
    assert (changed["threads"], changed["matmul_precision"]) == (torch.get_num_threads(), "medium")


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
