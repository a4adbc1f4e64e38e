"""The accelerators torch can use here, and how busy they are; never creates a context to look at a device.

torch counts devices without a context. Names, memory and utilization of NVIDIA's come from NVML directly.
"""

from __future__ import annotations

import re

from placer.machine import nvml


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
