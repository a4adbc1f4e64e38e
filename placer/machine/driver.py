"""What NVIDIA's driver says by itself, whatever torch makes of it: for a report on a machine that does not work."""

from __future__ import annotations

from typing import Any


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
    known: dict[str, Any] = {"driver": _answer(pynvml, pynvml.nvmlSystemGetDriverVersion, default="")}
    version = _answer(pynvml, pynvml.nvmlSystemGetCudaDriverVersion, default=0)
    known["cuda"] = f"{version // 1000}.{version % 1000 // 10}" if version else ""
    count = _answer(pynvml, pynvml.nvmlDeviceGetCount, default=0)
    known["gpus"] = [_gpu(pynvml, index) for index in range(count)]
    return known


def _gpu(nvml: Any, index: int) -> dict[str, Any]:
    handle = _answer(nvml, lambda: nvml.nvmlDeviceGetHandleByIndex(index), default=None)
    if handle is None:
        return {"name": "", "memory_bytes": 0, "compute_capability": ""}
    capability = _answer(nvml, lambda: nvml.nvmlDeviceGetCudaComputeCapability(handle), default=())
    return {
        "name": _answer(nvml, lambda: nvml.nvmlDeviceGetName(handle), default=""),
        "memory_bytes": _answer(nvml, lambda: int(nvml.nvmlDeviceGetMemoryInfo(handle).total), default=0),
        "compute_capability": ".".join(map(str, capability)),
    }


def _answer(nvml: Any, question: Any, *, default: Any) -> Any:
    try:
        answer = question()
    except (nvml.NVMLError, AttributeError):
        return default
    return answer.decode(errors="replace") if isinstance(answer, bytes) else answer
