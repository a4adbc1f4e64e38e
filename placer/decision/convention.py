"""The rule of every training script, for when nothing can be predicted; and models that have no choice."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy

from placer import machine
from placer.decision.decision import Decision
from placer.placement import anchor
from placer.workload import Workload


def conventional(workload: Workload, devices: Sequence[str] | None, why: str) -> Decision:
    """The rule of every training script: an accelerator if there is one and the model fits in its free memory."""
    devices, bound = reachable(workload, devices)
    available = tuple(devices) if devices is not None else machine.available_devices()
    threads = torch.get_num_threads()
    if bound:
        return Decision(available[0], threads, None, f"{available[0]}: {bound[0]} ({why})")
    need = rough_memory(workload)
    rule = "no accelerator is present"
    for name in available:
        if name == "cpu":
            continue
        free = _answering_memory(name)
        if free is not None and need <= free:
            return Decision(name, threads, None, f"{name}: by convention, as an accelerator is present ({why})")
        rule = "the accelerator does not answer" if free is None else "the model does not fit on the accelerator"
    device = "cpu" if "cpu" in available else available[0]
    return Decision(device, threads, None, f"{device}: by convention, as {rule} ({why})")


def reachable(workload: Workload, devices: Sequence[str] | None) -> tuple[tuple[str, ...] | None, tuple[str, ...]]:
    """The devices to choose from, and why they are fewer: a model that must not be moved has only its own.

    Unless others were asked for: then the script knows what it does.
    """
    bound = anchor(workload.modules)
    if bound is None or (devices is not None and bound[0] not in devices):
        return None if devices is None else tuple(devices), ()
    return (bound[0],), (f"not to be moved: {bound[1]}",)


def rough_memory(workload: Workload) -> int:
    """Bytes of parameters and buffers, four times over for training (gradients and two optimizer states)."""
    held: dict[int, Tensor] = {}
    for module in workload.modules:
        held.update({id(t): t for t in (*module.parameters(), *module.buffers()) if not is_lazy(t)})
    size = sum(tensor.numel() * tensor.element_size() for tensor in held.values())
    return size * (4 if workload.mode == "train" else 1)


def _answering_memory(device: str) -> int | None:
    """Free bytes; None of a device that is listed and cannot be used: gone since, or its driver is too old."""
    try:
        return machine.memory(device)[0]
    except (RuntimeError, ValueError, OSError):
        return None
