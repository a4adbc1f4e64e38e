"""What step times depend on: the hardware and the settings of torch, as plain JSON values."""

from __future__ import annotations

from typing import Any

from placer.machine import nvml
from placer.machine.cpu import cpu_instructions, cpu_model, cpu_version, usable_cores
from placer.machine.device_memory import host_memory
from placer.machine.devices import accelerators, split_device


def fingerprint() -> dict[str, Any]:
    """What step times depend on, as plain JSON values; ``profile.stale_fields`` compares two of them.

    The precision of float32 products is told but not compared: a script sets it, and prices follow it. ``tf32_matmul``
    and ``tf32_convolution`` are there only beside an accelerator. Never creates a device context.
    """
    import torch

    found = describe_accelerators()
    facts: dict[str, Any] = {
        "cpu": cpu_model(),
        "cpu_version": cpu_version(),
        "cpu_instructions": cpu_instructions(),
        "cores": usable_cores(),
        "memory_bytes": host_memory()[1],
        "accelerators": found,
        "torch": str(torch.__version__),
        "threads": torch.get_num_threads(),
        "matmul_precision": matmul_precision(),
    }
    if found:
        facts["tf32_matmul"], facts["tf32_convolution"], _ = tf32()
    return facts


def describe_accelerators() -> list[dict[str, Any]]:
    """``device``, ``name``, ``memory_bytes`` (0: unknown), ``driver`` ("": unknown), ... of every accelerator here."""
    return [_describe(device) for device in accelerators()]


def tf32() -> tuple[bool, bool, bool]:
    """Whether CUDA multiplies float32 in TF32: in matrix products, and in cuDNN's convolutions and recurrent layers."""
    import torch

    return (
        _tf32(torch.backends.cuda.matmul, torch.backends.cuda.matmul),
        _tf32(getattr(torch.backends.cudnn, "conv", None), torch.backends.cudnn),
        _tf32(getattr(torch.backends.cudnn, "rnn", None), torch.backends.cudnn),
    )


def matmul_precision() -> str:
    """How exactly torch multiplies float32 matrices: ``highest``, ``high`` or ``medium``, or a backend's own word."""
    import torch

    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:  # torch refuses the question once its newer, per-backend switches were used
        return str(getattr(torch.backends.cuda.matmul, "fp32_precision", "unknown"))


def _describe(device: str) -> dict[str, Any]:
    kind, index = split_device(device)
    known = nvml.describe(index) if kind == "cuda" else None
    name = kind if kind != "mps" else cpu_model()
    return {"device": device, "name": name, "memory_bytes": 0, "driver": "", **(known or {})}


def _tf32(current: object, legacy: object) -> bool:
    """Torch has two ways to say TF32 and refuses to answer the old one once the new one was used."""
    precision = getattr(current, "fp32_precision", None)
    return precision == "tf32" if precision is not None else bool(getattr(legacy, "allow_tf32", False))
