"""The few NVML questions placer asks about NVIDIA devices, by torch's device index. None when nobody answers.

A machine without the NVIDIA driver is normal, so every failure of the library means "not known", never an error.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


def describe(index: int) -> dict[str, Any] | None:
    """``{"name", "memory_bytes", "driver"}`` of the device torch calls ``cuda:index``."""
    return _ask(
        index,
        lambda nvml, handle: {
            "name": _text(nvml.nvmlDeviceGetName(handle)),
            "memory_bytes": int(nvml.nvmlDeviceGetMemoryInfo(handle).total),
            "driver": _text(nvml.nvmlSystemGetDriverVersion()),
        },
    )


def memory(index: int) -> tuple[int, int] | None:
    """(free, total) bytes."""

    def read(nvml: Any, handle: Any) -> tuple[int, int]:
        info = nvml.nvmlDeviceGetMemoryInfo(handle)
        return int(info.free), int(info.total)

    return _ask(index, read)


def utilization(index: int) -> float | None:
    """Share of the last sample period in which a kernel ran, 0 to 1."""
    return _ask(index, lambda nvml, handle: nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100)


def visible_device(index: int, visible: str | None) -> int | str | None:
    """What CUDA_VISIBLE_DEVICES shows as device ``index``: an NVML index, the start of a UUID, or None.

    Follows the driver's rules: the list ends at the first entry that is not a device, and a UUID may be shortened.
    """
    if visible is None:
        return index
    entries: list[int | str] = []
    for entry in visible.split(","):
        text = entry.strip()
        if text.isdecimal():
            entries.append(int(text))
        elif text.startswith(("GPU-", "MIG-")):
            entries.append(text)
        else:
            break
    return entries[index] if index < len(entries) else None


@functools.cache
def _library() -> Any | None:
    """The initialised pynvml, or None without the package, the driver or a device."""
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    return pynvml


def _ask(index: int, question: Callable[[Any, Any], T]) -> T | None:
    library = _library()
    wanted = visible_device(index, os.environ.get("CUDA_VISIBLE_DEVICES"))
    if library is None or wanted is None:
        return None
    try:
        handle = _handle(library, wanted)
        return None if handle is None else question(library, handle)
    except library.NVMLError:
        return None


def _handle(library: Any, wanted: int | str) -> Any | None:
    if isinstance(wanted, int):
        return library.nvmlDeviceGetHandleByIndex(wanted)
    if wanted.startswith("MIG-"):
        return library.nvmlDeviceGetHandleByUUID(wanted)
    for index in range(library.nvmlDeviceGetCount()):
        handle = library.nvmlDeviceGetHandleByIndex(index)
        if _text(library.nvmlDeviceGetUUID(handle)).startswith(wanted):
            return handle
    return None


def _text(value: str | bytes) -> str:
    """Older bindings return bytes."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value
