"""The rule of every training script, for when nothing can be predicted; and models that have no choice."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy

from placer import machine
from placer.decision.candidates import unusable
from placer.decision.comparison import residence
from placer.decision.decision import Decision
from placer.placement import anchor
from placer.profile import Profile
from placer.workload import Workload


def conventional(
    workload: Workload, devices: Sequence[str] | None, why: str, profile: Profile | None = None
) -> Decision:
    """The rule of every training script: an accelerator if there is one and the model fits in its free memory.

    One that cannot be used, by ``profile`` or by its version, is none. Creates no context: where only that could tell
    what is free, the move will.
    """
    devices, bound = reachable(workload, devices)
    available = tuple(devices) if devices is not None else machine.available_devices()
    threads = torch.get_num_threads()
    if bound:
        return Decision(available[0], threads, None, f"{available[0]}: {bound[0]} ({why})")
    need = rough_memory(workload)
    where = residence(workload, {})
    rule = "no accelerator is present"
    for name in _usual_first(available, where.home):
        refused = unusable(name, profile)
        if refused is not None:
            rule = f"{name} cannot be used: {refused}"
            continue
        free = machine.known_free_memory(name)
        if free is None or need <= free + where.held.get(name, 0):
            return Decision(name, threads, None, f"{name}: by convention, as an accelerator is present ({why})")
        rule = "the model does not fit on the accelerator"
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


def _usual_first(available: Sequence[str], home: str) -> list[str]:
    """The accelerators: the one that the model is on, then the one that the process has set as its current device."""

    def order(name: str) -> tuple[bool, bool]:
        return name != home, name != machine.current_device(machine.split_device(name)[0])

    return sorted((name for name in available if name != "cpu"), key=order)
