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

    free, total = torch.get_device_module(kind).mem_get_info(index)
    return int(free), int(total)


def known_free_memory(device: str) -> int | None:
    """Free bytes, as far as they can be told without creating a context; None where only a context could tell.

    What torch's allocator keeps for this process and does not use is free for it, and counts. A device that does not
    answer is one of which nothing can be told. Raises ValueError for a device that is not there.
    """
    kind, index = devices.split_device(device)
    if kind == "cuda" and (found := nvml.memory(index)) is not None:
        free = found[0]
    elif kind in ("cpu", "mps") or devices.has_context(device):
        try:
            free = memory(device)[0]
        except (RuntimeError, OSError):  # a driver that reports none, or a context that an error has broken
            return None
    else:
        return None
    return free + max(reserved_memory(device) - allocated_memory(device), 0)


def reserved_memory(device: str) -> int:
    """Bytes of an accelerator that torch's allocator has taken for this process; 0 before there is a context."""
    return _allocator(device, "memory_reserved", "driver_allocated_memory")


def allocated_memory(device: str) -> int:
    """Bytes of them that tensors use."""
    return _allocator(device, "memory_allocated", "current_allocated_memory")


def _allocator(device: str, question: str, question_mps: str) -> int:
    """What the device's module answers to a question about its allocator; 0 where it has no such function."""
    import torch

    kind, index = devices.split_device(device)
    if kind == "cpu":
        return 0
    if kind == "mps":
        asked = getattr(torch.mps, question_mps, None)
        return int(asked()) if callable(asked) and torch.backends.mps.is_available() else 0
    asked = getattr(getattr(torch, kind, None), question, None)
    return int(asked(index)) if callable(asked) and devices.has_context(device) else 0


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
