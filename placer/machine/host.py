"""What this machine is: cores, memory, accelerators, and the settings that change how fast torch runs on them.

Nothing here but ``memory`` creates a context to look at a device (seconds, and hundreds of MB on the card): torch
counts devices without one, and names, memory and utilization of NVIDIA's come from NVML directly. torch is imported
inside the functions that need it, because ``placer profile path`` does not.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import math
import os
import platform
import re
import subprocess
from pathlib import Path
from typing import Any

from placer.machine import nvml

#: Where Linux says what a container may use: files of version 2, or folders of version 1.
_CGROUP = Path("/sys/fs/cgroup")


def usable_cores() -> int:
    """CPU cores this process may use: affinity masks, container quotas and LOKY_MAX_CPU_COUNT taken into account.

    What ``joblib.cpu_count`` says, without importing it: that alone took a tenth of a process's first ``choose``.
    """
    asked = getattr(os, "sched_getaffinity", None)
    counts = [len(asked(0)) if asked is not None else os.cpu_count() or 1, _container_cores()]
    with contextlib.suppress(KeyError, ValueError):
        counts.append(int(os.environ["LOKY_MAX_CPU_COUNT"]))
    return max(1, min(count for count in counts if count is not None))


@functools.cache
def cpu_model() -> str:
    """The CPU's marketing name, or the best description the system gives."""
    system = platform.system()
    name = ""
    try:
        if system == "Linux":
            fields = _cpuinfo()
            name = fields.get("model name") or fields.get("Model") or ""
            if not name and "CPU part" in fields:
                name = f"{platform.machine()} implementer {fields.get('CPU implementer')} part {fields['CPU part']}"
        elif system == "Darwin":
            command = ["/usr/sbin/sysctl", "-n", "machdep.cpu.brand_string"]
            name = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False).stdout
    except (OSError, UnicodeDecodeError, subprocess.SubprocessError):
        name = ""
    name = name or platform.processor() or platform.machine() or "unknown CPU"
    return " ".join("".join(c if c.isprintable() else " " for c in name).split())


@functools.cache
def cpu_version() -> str:
    """Which of the CPUs that share a name this is; hypervisors call many generations "AMD EPYC". "" where unknown."""
    try:
        fields = _cpuinfo() if platform.system() == "Linux" else {}
    except (OSError, UnicodeDecodeError):
        return ""
    words = (("cpu family", "family"), ("model", "model"))
    return " ".join(f"{word} {fields[field]}" for field, word in words if field in fields)


def cpu_instructions() -> str:
    """The vector instructions that torch's kernels use here, as torch names them: ``AVX2``, ``AVX512``, ..."""
    import torch

    return str(torch.backends.cpu.get_cpu_capability())


@functools.cache
def _cpuinfo() -> dict[str, str]:
    """What Linux says of the last of its CPUs."""
    return dict(re.findall(r"^([\w ]+?)\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE))


@functools.cache
def machine_id() -> str:
    """A file name (without suffix) for this machine, the same as long as host name and CPU stay."""
    node = platform.node().split(".")[0].lower()
    if not node or re.fullmatch(r"[0-9a-f]{12}", node):  # a container's random name: another one at every start
        node = "container"
    digest = hashlib.sha256(f"{node}|{cpu_model()}|{cpu_version()}|{platform.machine()}".encode()).hexdigest()[:10]
    slug = re.sub(r"[^a-z0-9]+", "-", node).strip("-")[:40] or "machine"
    return f"{slug}-{digest}"


def accelerators() -> tuple[str, ...]:
    """Accelerators torch can use here, the default one first: ``("cuda", "cuda:1")``, ``("mps",)`` or ``()``."""
    import torch

    # The accelerator this torch build knows, present or not. Its module counts devices without a context (and, unlike
    # torch.cuda.is_available, through NVML whatever PYTORCH_NVML_BASED_CUDA_CHECK says).
    try:
        built_for = torch.accelerator.current_accelerator()
    except RuntimeError:  # what torch 2.6 answers where none is present
        return ()
    if built_for is None:
        return ()
    kind = built_for.type
    count = torch.get_device_module(built_for).device_count()
    return tuple(kind if index == 0 else f"{kind}:{index}" for index in range(count))


def available_devices() -> tuple[str, ...]:
    """``"cpu"`` and every accelerator."""
    return ("cpu", *accelerators())


def memory(device: str) -> tuple[int, int]:
    """(free, total) bytes of a device's memory.

    CPU: what the system or the container still grants. NVIDIA: through NVML, without a context. Unified memory (mps):
    the CPU's. Other accelerators are asked through torch, which may initialise them. Raises ValueError for a device
    that is not there.
    """
    kind, index = split_device(device)
    if kind in ("cpu", "mps"):
        return _host_memory()
    if kind == "cuda" and (found := nvml.memory(index)) is not None:
        return found
    if device not in available_devices() and f"{kind}:{index}" not in available_devices():
        raise ValueError(f"no device {device!r} here; there is {', '.join(available_devices())}")
    import torch

    free, total = torch.get_device_module(torch.device(kind)).mem_get_info(index)
    return int(free), int(total)


def known_free_memory(device: str) -> int | None:
    """Free bytes, as far as they can be told without creating a context; None where only a context could tell.

    Raises ValueError for a device that is not there.
    """
    kind, index = split_device(device)
    if kind == "cuda" and (found := nvml.memory(index)) is not None:
        return found[0]
    return memory(device)[0] if kind in ("cpu", "mps") or has_context(device) else None


def has_context(device: str) -> bool:
    """Whether this process uses the accelerator already; False where its backend does not say, or is not there."""
    import torch

    module = getattr(torch, split_device(device)[0], None)
    asked = getattr(module, "is_initialized", None)
    return bool(asked()) if callable(asked) else False


def utilization(device: str) -> float | None:
    """Share of the time the device was busy lately, 0 to 1; None where nobody can tell."""
    kind, index = split_device(device)
    if kind == "cpu":
        import psutil

        # The load average where there is one: cpu_percent needs an interval, and would say 0 at the first call.
        load = psutil.getloadavg()[0] / max(1, psutil.cpu_count() or 1)
        return min(1.0, float(load))
    return nvml.utilization(index) if kind == "cuda" else None


def fingerprint() -> dict[str, Any]:
    """What step times depend on, as plain JSON values; ``profile.stale_fields`` compares two of them.

    ``tf32_matmul`` and ``tf32_convolution`` are there only beside an accelerator. Never creates a device context.
    """
    import torch

    found = accelerators()
    facts: dict[str, Any] = {
        "cpu": cpu_model(),
        "cpu_version": cpu_version(),
        "cpu_instructions": cpu_instructions(),
        "cores": usable_cores(),
        "memory_bytes": _host_memory()[1],
        "accelerators": [_describe(device) for device in found],
        "torch": str(torch.__version__),
        "threads": torch.get_num_threads(),
        "matmul_precision": matmul_precision(),
    }
    if found:
        facts["tf32_matmul"] = _tf32(torch.backends.cuda.matmul, torch.backends.cuda.matmul)
        facts["tf32_convolution"] = _tf32(getattr(torch.backends.cudnn, "conv", None), torch.backends.cudnn)
    return facts


def matmul_precision() -> str:
    """How exactly torch multiplies float32 matrices: ``highest``, ``high`` or ``medium``, or a backend's own word."""
    import torch

    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:  # torch refuses the question once its newer, per-backend switches were used
        return str(getattr(torch.backends.cuda.matmul, "fp32_precision", "unknown"))


def split_device(device: str) -> tuple[str, int]:
    """``"cuda:1"`` -> ``("cuda", 1)``, ``"cpu"`` -> ``("cpu", 0)``; ValueError for anything else than name[:index]."""
    match = re.fullmatch(r"([a-z][a-z0-9_]*)(?::(\d{1,3}))?", device)
    if match is None:
        raise ValueError(f"not a device: {device!r}; give a name like 'cpu', 'cuda' or 'cuda:1'")
    return match[1], int(match[2] or 0)


def normal_device(device: str) -> str:
    """The one spelling used in profiles: ``"cuda:0"`` -> ``"cuda"``."""
    kind, index = split_device(device)
    return kind if index == 0 else f"{kind}:{index}"


def _describe(device: str) -> dict[str, Any]:
    kind, index = split_device(device)
    facts = nvml.describe(index) if kind == "cuda" else None
    if facts is None:
        facts = {"name": kind if kind != "mps" else cpu_model(), "memory_bytes": 0, "driver": ""}
    return {"device": device, **facts}


def _tf32(current: object, legacy: object) -> bool:
    """Torch has two ways to say TF32 and refuses to answer the old one once the new one was used."""
    precision = getattr(current, "fp32_precision", None)
    return precision == "tf32" if precision is not None else bool(getattr(legacy, "allow_tf32", False))


def _host_memory() -> tuple[int, int]:
    import psutil

    system = psutil.virtual_memory()
    free, total = int(system.available), int(system.total)
    limit, used = _container_memory()
    if 0 < limit < total:
        return max(0, min(free, limit - used)), limit
    return free, total


def _container_cores() -> int | None:
    """Cores' worth of time that this process's control group grants it, rounded up; None without a limit."""
    for files in ((_CGROUP / "cpu.max",), (_CGROUP / "cpu/cpu.cfs_quota_us", _CGROUP / "cpu/cpu.cfs_period_us")):
        try:
            quota, period = map(int, " ".join(file.read_text() for file in files).split())
        except (OSError, ValueError):  # no such hierarchy, or "max": no limit
            continue
        if quota > 0 and period > 0:
            return math.ceil(quota / period)
    return None


def _container_memory() -> tuple[int, int]:
    """(limit, used without the reclaimable file cache) of this process's control group; (0, 0) without a limit."""
    if os.name != "posix":
        return 0, 0
    for folder, limit_name, used_name, cache in (
        (_CGROUP, "memory.max", "memory.current", "inactive_file"),
        (_CGROUP / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ):
        try:
            limit = int(Path(folder, limit_name).read_text())
            used = int(Path(folder, used_name).read_text())
            stat = dict(line.split() for line in Path(folder, "memory.stat").read_text().splitlines())
            return limit, max(0, used - int(stat.get(cache, 0)))
        except (OSError, ValueError):  # no such hierarchy, or "max": no limit
            continue
    return 0, 0
