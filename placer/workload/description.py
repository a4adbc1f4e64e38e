"""A workload as plain values, for explanations and the history of decisions."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from placer.nest import tensors
from placer.workload.workload import Workload


def describe_workload(workload: Workload) -> dict[str, Any]:
    """A workload as plain values, for explanations and the history."""
    return {
        "target": _target_name(workload.target),
        "mode": workload.mode,
        "inputs": describe_inputs(workload),
        "optimizer": workload.optimizer_name,
        "loss": None if workload.loss is None else _target_name(workload.loss),
        "steps": workload.steps,
        "data": workload.data,
        "autocast": None if workload.autocast is None else str(workload.autocast).removeprefix("torch."),
        **({} if workload.loading is None else {"loading": vars(workload.loading)}),
    }


def describe_inputs(workload: Workload) -> list[str]:
    """Shape and dtype of every input."""
    return [_spec(tensor) for tensor in tensors((workload.args, workload.kwargs))]


def _spec(tensor: Tensor) -> str:
    if tensor.is_nested:
        return f"{tensor.size(0)} nested {str(tensor.dtype).removeprefix('torch.')}"
    shape = "×".join(map(str, tensor.shape)) or "scalar"
    return f"{shape} {str(tensor.dtype).removeprefix('torch.')}"


def _target_name(target: object) -> str:
    if hasattr(target, "__name__"):
        return str(target.__name__)
    return type(target).__name__
