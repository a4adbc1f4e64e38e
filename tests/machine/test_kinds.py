"""Twins among accelerators, and those that this build of torch has no kernels for."""

from __future__ import annotations

import pytest
import torch

from placer.machine import kinds, nvml
from placer.machine.kinds import runs_on, same_kind, unsupported

GPU = {"device": "cuda", "name": "A", "memory_bytes": 8 * 2**30, "compute_capability": "8.6"}


def test_twins_have_one_name_and_as_much_memory() -> None:
    assert same_kind(GPU, {**GPU, "device": "cuda:1", "memory_bytes": 7.9 * 2**30})
    assert same_kind(GPU, {**GPU, "memory_bytes": 0})  # not known
    assert not same_kind(GPU, {**GPU, "memory_bytes": 16 * 2**30})
    assert not same_kind(GPU, {**GPU, "name": "B"})
    assert kinds.close("much", "much")


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
