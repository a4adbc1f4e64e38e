"""The accelerators torch can use here, and how busy they are; never creates a context to look at a device.

torch counts devices without a context. Names, memory and utilization of NVIDIA's come from NVML directly.
"""

from __future__ import annotations

import re

from placer.machine import nvml


def accelerators() -> tuple[str, ...]:
    """Accelerators torch can use here, the default one first: ``("cuda", "cuda:1")``, ``("mps",)`` or ``()``."""
    import torch

    kind = _built_for()
    if kind is None:
        return ()
    # Counts without a context, and unlike torch.cuda.is_available through NVML, whatever
    # PYTORCH_NVML_BASED_CUDA_CHECK says.
    count = torch.get_device_module(kind).device_count()
    return tuple(kind if index == 0 else f"{kind}:{index}" for index in range(count))


def available_devices() -> tuple[str, ...]:
    """``"cpu"`` and every accelerator."""
    return ("cpu", *accelerators())


def has_context(device: str) -> bool:
    """Whether this process uses the accelerator already; False where its backend does not say, or is not there.

    Of several it uses the current one, and those that its tensors have been on.
    """
    import torch

    kind, index = split_device(device)
    if not _is_initialized(kind):
        return False
    reserved = getattr(getattr(torch, kind), "memory_reserved", None)
    return normal_device(device) == current_device(kind) or bool(callable(reserved) and reserved(index))


def current_device(kind: str) -> str:
    """The device of a kind that torch means by its bare name: the first one, unless the process has set another."""
    import torch

    asked = getattr(getattr(torch, kind, None), "current_device", None)
    return normal_device(f"{kind}:{asked()}") if callable(asked) and _is_initialized(kind) else kind


def _is_initialized(kind: str) -> bool:
    """Whether this process uses a kind of accelerator, so that looking at one creates no context."""
    import torch

    asked = getattr(getattr(torch, kind, None), "is_initialized", None)
    return kind != "cpu" and bool(callable(asked) and asked())


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


def _built_for() -> str | None:
    """The kind of accelerator this build of torch knows, present or not."""
    import torch

    own_backend = torch._C._get_privateuse1_backend_name() != "privateuseone"  # comes before all that torch knows
    if (torch.version.cuda or torch.version.hip) and not own_backend:
        return "cuda"  # torch 2.6 would ask the driver, after which no forked process can use CUDA
    try:
        found = torch.accelerator.current_accelerator()
    except RuntimeError:  # what torch 2.6 answers where none is present
        return None
    return None if found is None else found.type


def normal_device(device: str) -> str:
    """The one spelling used in profiles: ``"cuda:0"`` -> ``"cuda"``."""
    kind, index = split_device(device)
    return kind if index == 0 else f"{kind}:{index}"
