"""The accelerators torch can use here, how busy they are, and the memory of every device in bytes.

No context is created to look at a device, but by ``memory`` where only a context can tell. torch counts devices without
one; names, memory and utilization of NVIDIA's come from NVML directly.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from placer.machine import nvml
from placer.machine.cpu import CGROUP


def accelerators() -> tuple[str, ...]:
    """Accelerators torch can use here, the default one first: ``("cuda", "cuda:1")``, ``("mps",)`` or ``()``."""
    import torch

    # The kind that this build of torch knows, present or not: asks no driver, after which no forked process could use
    # CUDA. Its devices are counted without a context, and unlike torch.cuda.is_available through NVML, whatever
    # PYTORCH_NVML_BASED_CUDA_CHECK says.
    accelerator = torch.accelerator.current_accelerator()
    if accelerator is None:
        return ()
    count = torch.get_device_module(accelerator.type).device_count()
    return tuple(normal_device(f"{accelerator.type}:{index}") for index in range(count))


def available_devices() -> tuple[str, ...]:
    """``"cpu"`` and every accelerator."""
    return ("cpu", *accelerators())


def has_context(device: str) -> bool:
    """Whether this process uses the accelerator already; False where its backend does not say, or is not there.

    Of several it uses the current one, and those that its tensors have been on.
    """
    kind, index = split_device(device)
    if not _asked(kind, "is_initialized"):
        return False
    return normal_device(device) == current_device(kind) or bool(_asked(kind, "memory_reserved", index))


def current_device(kind: str) -> str:
    """The device of a kind that torch means by its bare name: the first one, unless the process has set another."""
    number = _asked(kind, "current_device") if _asked(kind, "is_initialized") else None
    return kind if number is None else normal_device(f"{kind}:{number}")


def _asked(kind: str, question: str, *arguments: object) -> Any:
    """What torch's module for a kind of accelerator answers; None where it has no such function, and of the CPU."""
    import torch

    function = getattr(getattr(torch, kind, None), question, None)
    return function(*arguments) if kind != "cpu" and callable(function) else None


def utilization(device: str) -> float | None:
    """Share of the time the device was busy lately, 0 to 1; None where nobody can tell."""
    kind, index = split_device(device)
    if kind != "cpu":
        return nvml.utilization(index) if kind == "cuda" else None
    import psutil

    # The load average where there is one: cpu_percent needs an interval, and would say 0 at the first call.
    return min(1.0, float(psutil.getloadavg()[0] / max(1, psutil.cpu_count() or 1)))


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


def memory(device: str) -> tuple[int, int]:
    """(free, total) bytes of a device's memory; unified memory (mps) is the CPU's.

    NVIDIA's are asked through NVML, without a context, others through torch, which may initialise them. Raises
    ValueError for a device that is not there.
    """
    kind, index = split_device(device)
    if kind in ("cpu", "mps"):
        return host_memory()
    if kind == "cuda" and (by_nvml := nvml.memory(index)) is not None:
        return by_nvml
    if device not in available_devices() and f"{kind}:{index}" not in available_devices():
        raise ValueError(f"no device {device!r} here; there is {', '.join(available_devices())}")
    import torch

    free, total = torch.get_device_module(kind).mem_get_info(index)
    return int(free), int(total)


def known_free_memory(device: str) -> int | None:
    """Free bytes, as far as they can be told without creating a context; None where only a context could tell.

    What torch's allocator keeps for this process and does not use is free for it, and counts. A device that does not
    answer is one of which nothing can be told. Raises ValueError for a device that is not there.
    """
    kind, index = split_device(device)
    if kind == "cuda" and (by_nvml := nvml.memory(index)) is not None:
        free = by_nvml[0]
    elif kind in ("cpu", "mps") or has_context(device):
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


def _allocator(device: str, question: str, of_mps: str) -> int:
    """What the device's module answers to a question about its allocator; 0 where it has no such function."""
    import torch

    kind, index = split_device(device)
    if kind == "mps":
        return int(_asked(kind, of_mps) or 0) if torch.backends.mps.is_available() else 0
    return int(_asked(kind, question, index) or 0) if has_context(device) else 0


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


def unsupported(facts: Mapping[str, Any]) -> str | None:
    """Why torch cannot use an accelerator that a fingerprint describes so; None where nothing speaks against it.

    Told from versions alone, without a context.
    """
    import torch

    capability = str(facts.get("compute_capability") or "")
    if not torch.version.cuda or not capability:
        return None
    driver, built = nvml.cuda_version(), int(torch.version.cuda.split(".")[0])
    if driver is not None and driver[0] < built:
        return f"its driver runs CUDA {driver[0]}.{driver[1]}, and this torch needs CUDA {built}"
    flags: str = getattr(torch._C, "_cuda_getArchFlags", lambda: "")() or ""
    if flags and not runs_on(capability, flags.split()):
        return f"this torch has no kernels for compute capability {capability}"
    return None


def runs_on(capability: str, architectures: Sequence[str]) -> bool:
    """Whether code for ``architectures`` (``sm_80``, ``compute_90``, ``sm_90a``) runs on a GPU of a compute capability.

    Machine code runs on later minor versions of its major version, intermediate code (``compute``) on all later
    versions; code with the suffix ``a`` on its own version, with ``f`` like machine code.
    """
    wanted = tuple(map(int, capability.split(".")))
    for architecture in architectures:
        match = re.fullmatch(r"(sm|compute)_(\d+)(\d)([af]?)", architecture)
        if match is None:
            return True  # a name of later versions of CUDA: nothing can be said
        built = int(match[2]), int(match[3])
        if match[4] == "a":
            runs = built == wanted
        else:
            runs = built <= wanted and (match[1] == "compute" or built[0] == wanted[0])
        if runs:
            return True
    return False
