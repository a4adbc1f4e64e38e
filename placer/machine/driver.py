"""What NVIDIA's driver says by itself, whatever torch makes of it: for a report on a machine that does not work."""

from __future__ import annotations

from typing import Any

from placer.machine import nvml


def describe_driver() -> dict[str, Any]:
    """``driver``, ``cuda`` (the newest version it runs) and ``gpus``, or ``error``: why nobody answers.

    ``gpus`` holds ``name``, ``memory_bytes`` (0: unknown) and ``compute_capability`` ("": unknown) of every GPU of the
    machine in order of the bus, those that CUDA_VISIBLE_DEVICES hides among them. Creates no device context.
    """
    try:
        import pynvml
    except ImportError:
        return {"error": "the package nvidia-ml-py is not installed"}
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return {"error": str(error)}
    known = nvml.answered(pynvml, None, {**nvml.DRIVER, "count": lambda library, _: library.nvmlDeviceGetCount()})
    return {
        "driver": known.get("driver", ""),
        "cuda": ".".join(map(str, known.get("cuda", ()))),
        "gpus": [_gpu(pynvml, index) for index in range(known.get("count", 0))],
    }


def _gpu(library: Any, index: int) -> dict[str, Any]:
    found = nvml.answered(library, None, {"handle": lambda library, _: library.nvmlDeviceGetHandleByIndex(index)})
    known = nvml.answered(library, found["handle"], nvml.FACTS) if found else {}
    return {"name": "", "memory_bytes": 0, "compute_capability": "", **known}
