"""The machine, its software, and the seconds that a first context takes in a process that has done nothing else."""

from __future__ import annotations

import ctypes
import importlib.metadata
import json
import platform
import sys
from pathlib import Path
from typing import Any

import torch

import placer
from placer import machine
from placer.calibration.gpu_run.job import Job
from placer.calibration.measuring.watchdog import run_limited
from placer.errors import CalibrationError
from placer.profile import replace_file

#: Times the first touch of an accelerator, then asks what torch knows of it.
_CONTEXT = """
import json, sys, time, torch
start = time.perf_counter()
torch.ones(1, device=sys.argv[1])
module = torch.get_device_module(torch.device(sys.argv[1]))
module.synchronize()
seconds = time.perf_counter() - start
asked = getattr(module, "get_device_properties", None)
print(json.dumps({"context_seconds": seconds, "properties": str(asked(sys.argv[1]) if asked else None)}))
"""
PACKAGES = ("torch", "numpy", "scipy", "scikit-learn", "nvidia-ml-py", "transformers", "torch_geometric", "triton")
#: Seconds that ``nvidia-smi`` may take.
_SMI_SECONDS = 10.0


def run(job: Job) -> None:
    """Write ``environment.json`` and, where there is such a program, what ``nvidia-smi -q`` says."""
    facts = {
        "placer": placer.__version__,
        "python": platform.python_version(),
        "packages": {package: _version(package) for package in PACKAGES},
        "torch": torch_facts(job.kind),
        "fingerprint": machine.fingerprint(),
    }
    _write(job, facts)
    try:
        known = json.loads(run_limited([sys.executable, "-c", _CONTEXT, job.device], seconds=max(job.left, 1.0)))
    except CalibrationError as error:  # a device that hangs costs this number, not the run
        known = {"error": str(error)}
    _write(job, {**facts, "device": {job.device: known}})
    _list_devices(job)


def _list_devices(job: Job) -> None:
    try:
        listed = run_limited(["nvidia-smi", "-q"], seconds=_SMI_SECONDS)
    except (CalibrationError, OSError) as error:  # it is not here; or a driver that hangs costs this list, not the run
        job.say(f"nvidia-smi: {error}")
    else:
        replace_file(job.folder / "nvidia-smi.txt", listed.encode())


def torch_facts(kind: str) -> dict[str, Any]:
    """What torch was built with and finds, without a context."""
    cudnn = torch.backends.cudnn
    return {
        "version": str(torch.__version__),
        "cuda": torch.version.cuda,
        "hip": torch.version.hip,
        "cudnn": cudnn.version() if kind == "cuda" and cudnn.is_available() else None,
        "cupti": cupti_version() if kind == "cuda" else None,
        "architectures": torch.cuda.get_arch_list() if kind == "cuda" else [],
    }


def cupti_version() -> int | None:
    """The version of CUPTI, the library that torch's recorder sees kernels through; None where it is not loaded here.

    As it tells it: 13.0 says 130000, or 28 and so on before 12.0.
    """
    try:
        mapped = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    found = ctypes.c_uint32()
    for path in sorted({line.split(maxsplit=5)[5] for line in mapped.splitlines() if "libcupti" in line}):
        try:
            if ctypes.CDLL(path).cuptiGetVersion(ctypes.byref(found)) == 0:
                return found.value
        except (OSError, AttributeError):
            continue
    return None


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _write(job: Job, facts: dict[str, Any]) -> None:
    replace_file(job.folder / "environment.json", json.dumps(facts, indent=1, sort_keys=True).encode() + b"\n")
