"""The few NVML questions placer asks about NVIDIA devices, by torch's device index. None when nobody answers.

A machine without the NVIDIA driver is normal, so every failure of the library means "not known", never an error.

Without a device context NVML numbers the devices by bus and CUDA by speed, unless CUDA_DEVICE_ORDER is PCI_BUS_ID. The
two agree where all devices are alike; see ``order_is_known``. With a context the device is found by its UUID.
"""

from __future__ import annotations

import functools
import os
from typing import Any

#: Lanes of an SM by compute capability; newer ones have 128.
_LANES = {"3.5": 192, "3.7": 192, "6.0": 64, "7.0": 64, "7.2": 64, "7.5": 64, "8.0": 64}


def describe(index: int) -> dict[str, Any] | None:
    """Those known of ``name``, ``memory_bytes``, ``driver``, ``sms`` and ``compute_capability`` of ``cuda:index``."""
    handle = _device(index)
    if handle is None:
        return None
    facts = _facts(handle)
    lanes = _ask("nvmlDeviceGetNumGpuCores", handle)
    sms = None if lanes is None else int(lanes) // _LANES.get(facts.get("compute_capability", ""), 128)
    return {**facts, **_answered(sms=sms, driver=_ask("nvmlSystemGetDriverVersion"))}


def _facts(handle: Any) -> dict[str, Any]:
    """What a device tells of itself. Virtual ones, and those that share the system's memory, leave questions open."""
    info = _ask("nvmlDeviceGetMemoryInfo", handle)
    capability = _ask("nvmlDeviceGetCudaComputeCapability", handle)
    return _answered(
        name=_ask("nvmlDeviceGetName", handle),
        memory_bytes=None if info is None else int(info.total),
        compute_capability=None if capability is None else "{}.{}".format(*capability),
    )


def _answered(**answers: Any) -> dict[str, Any]:
    return {name: value for name, value in answers.items() if value is not None}


def cuda_version() -> tuple[int, int] | None:
    """The newest version of CUDA that the driver runs: ``(12, 4)``."""
    version = _ask("nvmlSystemGetCudaDriverVersion")
    return None if version is None else (version // 1000, version % 1000 // 10)


def order_is_known() -> bool:
    """Whether NVML and CUDA certainly number the devices alike: in order of the bus, or all of one name."""
    if os.environ.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID" or _uuid(0) is not None:
        return True
    return len({_ask("nvmlDeviceGetName", handle) for handle in _handles()}) <= 1


def memory(index: int) -> tuple[int, int] | None:
    """(free, total) bytes."""
    info = _ask("nvmlDeviceGetMemoryInfo", _device(index))
    return None if info is None else (int(info.free), int(info.total))


def utilization(index: int) -> float | None:
    """Share of the last sample period in which a kernel ran, 0 to 1."""
    rates = _ask("nvmlDeviceGetUtilizationRates", _device(index))
    return None if rates is None else float(rates.gpu / 100)


def describe_driver() -> dict[str, Any]:
    """``driver``, ``cuda`` (the newest version it runs) and ``gpus``, or ``error``: why nobody answers.

    ``gpus`` holds ``name``, ``memory_bytes`` (0: unknown) and ``compute_capability`` ("": unknown) of every GPU of the
    machine in order of the bus, those that CUDA_VISIBLE_DEVICES hides among them. Creates no device context.
    """
    library, error = _loaded()
    if library is None:
        return {"error": error}
    version = cuda_version()
    unknown = {"name": "", "memory_bytes": 0, "compute_capability": ""}
    return {
        "driver": _ask("nvmlSystemGetDriverVersion") or "",
        "cuda": "" if version is None else "{}.{}".format(*version),
        "gpus": [{**unknown, **_facts(handle)} for handle in _handles()],
    }


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
    return entries[index] if index < len(entries) == len(set(entries)) else None


@functools.cache
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


def _ask(question: str, *arguments: Any) -> Any:
    """What a function of NVML returns; None without the library, an argument, or an answer of the driver or device."""
    library, _ = _loaded()
    if library is None or None in arguments:
        return None
    try:
        return getattr(library, question)(*arguments)
    except (library.NVMLError, AttributeError):  # the latter: an older library has no such function
        return None


def _handles() -> list[Any]:
    """NVML's handles of all devices of the machine, in order of the bus; None for one that does not answer."""
    return [_ask("nvmlDeviceGetHandleByIndex", number) for number in range(_ask("nvmlDeviceGetCount") or 0)]


def _device(index: int) -> Any | None:
    """NVML's handle of the device torch calls ``cuda:index``."""
    uuid = _uuid(index)
    handle = None if uuid is None else _handle(f"GPU-{uuid}")
    if handle is None:
        handle = _handle(visible_device(index, os.environ.get("CUDA_VISIBLE_DEVICES")))
    return None if handle is None else _first_instance(handle)


def _handle(device: int | str | None) -> Any | None:
    """NVML's handle of a device by its number or the start of its UUID."""
    if isinstance(device, int):
        return _ask("nvmlDeviceGetHandleByIndex", device)
    if device is None or device.startswith("MIG-"):
        return _ask("nvmlDeviceGetHandleByUUID", device)
    for handle in _handles():
        if str(_ask("nvmlDeviceGetUUID", handle)).startswith(device):
            return handle
    return None


def _first_instance(handle: Any) -> Any | None:
    """The device itself; where it is split (MIG), its first instance, which is all that CUDA then uses of it."""
    split = _ask("nvmlDeviceGetMigMode", handle)
    most = _ask("nvmlDeviceGetMaxMigDeviceCount", handle)
    if split is None or not split[0] or most is None:  # cannot be split, is not, or is an instance already
        return handle
    for number in range(most):
        instance = _ask("nvmlDeviceGetMigDeviceHandleByIndex", handle, number)
        if instance is not None:
            return instance
    return None


def _uuid(index: int) -> str | None:
    """What CUDA calls the device, without ``GPU-``; None before this process has a context."""
    import torch

    if not torch.cuda.is_initialized() or index >= torch.cuda.device_count():
        return None
    return str(torch.cuda.get_device_properties(index).uuid)
