"""The few NVML questions placer asks about NVIDIA devices, by torch's device index. None when nobody answers.

A machine without the NVIDIA driver is normal, so every failure of the library means "not known", never an error.

Without a device context NVML numbers the devices by bus and CUDA by speed, unless CUDA_DEVICE_ORDER is PCI_BUS_ID. The
two agree where all devices are alike; see ``order_is_known``. With a context the device is found by its UUID.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Mapping
from typing import Any

#: What is asked of the library about a device's handle.
Question = Callable[[Any, Any], Any]


def _text(value: str | bytes) -> str:
    """Older bindings return bytes."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _version(nvml: Any, _: Any) -> tuple[int, int]:
    version = int(nvml.nvmlSystemGetCudaDriverVersion())
    return version // 1000, version % 1000 // 10


def _memory(nvml: Any, handle: Any) -> tuple[int, int]:
    info = nvml.nvmlDeviceGetMemoryInfo(handle)
    return int(info.free), int(info.total)


def _throttle(nvml: Any, handle: Any) -> int:
    reasons = getattr(nvml, "nvmlDeviceGetCurrentClocksEventReasons", None)
    return int((reasons or nvml.nvmlDeviceGetCurrentClocksThrottleReasons)(handle))


#: Lanes of an SM by compute capability; newer ones have 128.
_LANES = {"3.5": 192, "3.7": 192, "6.0": 64, "7.0": 64, "7.2": 64, "7.5": 64, "8.0": 64}


def _capability(nvml: Any, handle: Any) -> str:
    return "{}.{}".format(*nvml.nvmlDeviceGetCudaComputeCapability(handle))


def _sms(nvml: Any, handle: Any) -> int:
    """Streaming multiprocessors of a device; NVML counts their lanes."""
    return int(nvml.nvmlDeviceGetNumGpuCores(handle)) // _LANES.get(_capability(nvml, handle), 128)


#: What a device tells of itself. Boards whose memory is the system's, and virtual ones, do not answer everything.
FACTS: Mapping[str, Question] = {
    "name": lambda nvml, handle: _text(nvml.nvmlDeviceGetName(handle)),
    "memory_bytes": lambda nvml, handle: int(nvml.nvmlDeviceGetMemoryInfo(handle).total),
    "compute_capability": _capability,
}
#: What the driver tells, of no device: its own version, that of the newest CUDA it runs, and the number of devices.
DRIVER: Mapping[str, Question] = {
    "driver": lambda nvml, _: _text(nvml.nvmlSystemGetDriverVersion()),
    "cuda": _version,
    "count": lambda nvml, _: nvml.nvmlDeviceGetCount(),
}
#: What changes while a device works. The throttle reasons are NVML's bits.
CLOCKS: Mapping[str, Question] = {
    "sm_mhz": lambda nvml, handle: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM),
    "power_watts": lambda nvml, handle: nvml.nvmlDeviceGetPowerUsage(handle) / 1000,
    "power_limit_watts": lambda nvml, handle: nvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1000,
    "throttle": _throttle,
}


def describe(index: int) -> dict[str, Any] | None:
    """Those known of ``name``, ``memory_bytes``, ``driver``, ``sms`` and ``compute_capability`` of ``cuda:index``."""
    return _answers(index, {**FACTS, "sms": _sms, "driver": DRIVER["driver"]})


def cuda_version() -> tuple[int, int] | None:
    """The newest version of CUDA that the driver runs: ``(12, 4)``."""
    library = _library()
    return None if library is None else answered(library, None, DRIVER).get("cuda")


def order_is_known() -> bool:
    """Whether NVML and CUDA certainly number the devices alike: in order of the bus, or all of one name."""
    library = _library()
    if library is None or os.environ.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID" or _context():
        return True
    try:
        handles = map(library.nvmlDeviceGetHandleByIndex, range(library.nvmlDeviceGetCount()))
        return len({_text(library.nvmlDeviceGetName(handle)) for handle in handles}) <= 1
    except library.NVMLError:
        return True


def memory(index: int) -> tuple[int, int] | None:
    """(free, total) bytes."""
    return (_answers(index, {"memory": _memory}) or {}).get("memory")


def utilization(index: int) -> float | None:
    """Share of the last sample period in which a kernel ran, 0 to 1."""
    busy = {"gpu": lambda nvml, handle: nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100}
    return (_answers(index, busy) or {}).get("gpu")


def clocks(index: int) -> dict[str, float] | None:
    """``sm_mhz``, ``power_watts``, ``power_limit_watts`` and ``throttle`` (NVML's bits), those that are known.

    The clock of the multiprocessors is that of this moment, the power the mean of up to a second before.
    """
    known = _answers(index, CLOCKS)
    return None if known is None else {name: float(value) for name, value in known.items()}


def describe_driver() -> dict[str, Any]:
    """``driver``, ``cuda`` (the newest version it runs) and ``gpus``, or ``error``: why nobody answers.

    ``gpus`` holds ``name``, ``memory_bytes`` (0: unknown) and ``compute_capability`` ("": unknown) of every GPU of the
    machine in order of the bus, those that CUDA_VISIBLE_DEVICES hides among them. Creates no device context.
    """
    library, error = _loaded()
    if library is None:
        return {"error": error}
    known = answered(library, None, DRIVER)
    gpus = []
    for index in range(known.get("count", 0)):
        gpu = {"name": "", "memory_bytes": 0, "compute_capability": ""}
        with contextlib.suppress(library.NVMLError):
            gpu |= answered(library, library.nvmlDeviceGetHandleByIndex(index), FACTS)
        gpus.append(gpu)
    return {"driver": known.get("driver", ""), "cuda": ".".join(map(str, known.get("cuda", ()))), "gpus": gpus}


def visible_device(index: int, visible: str | None) -> int | str | None:
    """What CUDA_VISIBLE_DEVICES shows as device ``index``: an NVML index, the start of a UUID, or None.

    Follows the driver's rules: the list ends at the first entry that is not a device, a list that names a device twice
    shows none, and a UUID may be shortened.
    """
    if visible is None:
        return index
    entries: list[int | str] = []
    for entry in map(str.strip, visible.split(",")):
        if not entry.isdecimal() and not entry.startswith(("GPU-", "MIG-")):
            break
        entries.append(int(entry) if entry.isdecimal() else entry)
    repeated = len(set(entries)) < len(entries)
    return entries[index] if index < len(entries) and not repeated else None


def _loaded() -> tuple[Any | None, str]:
    """The initialised pynvml; None without the package, the driver or a device, and why."""
    try:
        import pynvml
    except ImportError:
        return None, "the package nvidia-ml-py is not installed"
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return None, str(error)
    return pynvml, ""


@functools.cache
def _library() -> Any | None:
    return _loaded()[0]


def _answers(index: int, questions: Mapping[str, Question]) -> dict[str, Any] | None:
    """The answers of the device torch calls ``cuda:index``, to those questions that have one; None where none has."""
    library = _library()
    if library is None:
        return None
    try:
        handle = _found(library, index)
    except library.NVMLError:
        return None
    return None if handle is None else answered(library, handle, questions) or None


def answered(library: Any, handle: Any, questions: Mapping[str, Question]) -> dict[str, Any]:
    """The answers to those of several questions that have one."""
    known: dict[str, Any] = {}
    for name, question in questions.items():
        with contextlib.suppress(library.NVMLError, AttributeError):
            known[name] = question(library, handle)
    return known


def _found(library: Any, index: int) -> Any | None:
    """NVML's handle of the device torch calls ``cuda:index``."""
    uuid = _uuid(index)
    handle = None if uuid is None else _handle(library, f"GPU-{uuid}")
    if handle is None:
        wanted = visible_device(index, os.environ.get("CUDA_VISIBLE_DEVICES"))
        handle = None if wanted is None else _handle(library, wanted)
    return None if handle is None else _instance(library, handle)


def _handle(library: Any, wanted: int | str) -> Any | None:
    if isinstance(wanted, int):
        return library.nvmlDeviceGetHandleByIndex(wanted)
    if wanted.startswith("MIG-"):
        return library.nvmlDeviceGetHandleByUUID(wanted)
    handles = map(library.nvmlDeviceGetHandleByIndex, range(library.nvmlDeviceGetCount()))
    return next((h for h in handles if _text(library.nvmlDeviceGetUUID(h)).startswith(wanted)), None)


def _instance(library: Any, handle: Any) -> Any | None:
    """The device itself; where it is split (MIG), its first instance, which is all that CUDA then uses of it."""
    try:
        if not library.nvmlDeviceGetMigMode(handle)[0]:
            return handle
        count = library.nvmlDeviceGetMaxMigDeviceCount(handle)
    except (library.NVMLError, AttributeError):  # cannot be split, or is an instance already
        return handle
    for number in range(count):
        with contextlib.suppress(library.NVMLError):
            return library.nvmlDeviceGetMigDeviceHandleByIndex(handle, number)
    return None


def _context() -> bool:
    """Whether this process uses CUDA already."""
    import torch

    return bool(torch.cuda.is_initialized())


def _uuid(index: int) -> str | None:
    """What CUDA calls the device, without ``GPU-``; None before this process has a context, and in older torch."""
    import torch

    if not _context() or index >= torch.cuda.device_count():
        return None
    found = getattr(torch.cuda.get_device_properties(index), "uuid", None)
    return None if found is None else str(found)
