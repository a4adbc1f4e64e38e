"""Free and total memory of every device, in bytes."""

from __future__ import annotations

import os
from pathlib import Path

from placer.machine import devices, nvml
from placer.machine.cpu import CGROUP


def memory(device: str) -> tuple[int, int]:
    """(free, total) bytes of a device's memory.

    CPU: what the system or the container still grants. NVIDIA: through NVML, without a context. Unified memory (mps):
    the CPU's. Other accelerators are asked through torch, which may initialise them. Raises ValueError for a device
    that is not there.
    """
    kind, index = devices.split_device(device)
    if kind in ("cpu", "mps"):
        return host_memory()
    if kind == "cuda" and (found := nvml.memory(index)) is not None:
        return found
    if device not in devices.available_devices() and f"{kind}:{index}" not in devices.available_devices():
        raise ValueError(f"no device {device!r} here; there is {', '.join(devices.available_devices())}")
    import torch

    free, total = torch.get_device_module(torch.device(kind)).mem_get_info(index)
    return int(free), int(total)


def known_free_memory(device: str) -> int | None:
    """Free bytes, as far as they can be told without creating a context; None where only a context could tell.

    Raises ValueError for a device that is not there.
    """
    kind, index = devices.split_device(device)
    if kind == "cuda" and (found := nvml.memory(index)) is not None:
        return found[0]
    return memory(device)[0] if kind in ("cpu", "mps") or devices.has_context(device) else None


def host_memory() -> tuple[int, int]:
    """(free, total) bytes that the system, or the container, grants this process."""
    import psutil

    system = psutil.virtual_memory()
    free, total = int(system.available), int(system.total)
    limit, used = _container_memory()
    if 0 < limit < total:
        return max(0, min(free, limit - used)), limit
    return free, total


def _container_memory() -> tuple[int, int]:
    """(limit, used without the reclaimable file cache) of this process's control group; (0, 0) without a limit."""
    if os.name != "posix":
        return 0, 0
    for folder, limit_name, used_name, cache in (
        (CGROUP, "memory.max", "memory.current", "inactive_file"),
        (CGROUP / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ):
        try:
            limit = int(Path(folder, limit_name).read_text())
            used = int(Path(folder, used_name).read_text())
            stat = dict(line.split() for line in Path(folder, "memory.stat").read_text().splitlines())
            return limit, max(0, used - int(stat.get(cache, 0)))
        except (OSError, ValueError):  # no such hierarchy, or "max": no limit
            continue
    return 0, 0
