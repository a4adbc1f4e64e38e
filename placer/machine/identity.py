"""What step times depend on: the hardware and the settings of torch, as plain JSON values."""

from __future__ import annotations

from typing import Any

from placer.machine import nvml
from placer.machine.cpu import cpu_instructions, cpu_model, cpu_version, usable_cores
from placer.machine.device_memory import host_memory
from placer.machine.devices import accelerators, split_device


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
        "memory_bytes": host_memory()[1],
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
