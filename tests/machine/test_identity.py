"""The fingerprint: what step times depend on."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import torch

from placer import machine
from placer.profile import Profile, stale_fields


def test_fingerprint_is_json_and_equals_itself() -> None:
    first, second = machine.fingerprint(), machine.fingerprint()
    assert json.loads(json.dumps(first)) == second
    assert first["torch"] == torch.__version__
    assert first["threads"] == torch.get_num_threads()
    assert [a["device"] for a in first["accelerators"]] == list(machine.accelerators())
    assert first["cpu"].isprintable()
    assert first["cpu"]


def test_settings_that_change_speed_show_up() -> None:
    before = machine.fingerprint()
    torch.set_num_threads(before["threads"] + 3)
    torch.set_float32_matmul_precision("medium")
    profile = Profile(1, "", before, (), {}, (), True, 0.0)
    found = " ".join(stale_fields(profile, machine.fingerprint()))
    assert f"threads: {before['threads']} -> {before['threads'] + 3}" in found
    assert machine.fingerprint()["matmul_precision"] == "medium"
    assert "precision" not in found  # a property of the price, not of the machine


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
