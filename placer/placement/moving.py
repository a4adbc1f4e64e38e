"""Moving: nests of tensors, modules and optimizer state from one device to another, each thing once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from placer import machine
from placer.nest import map_nest, tensors

#: Kinds of devices of which there is one, without a number.
_SINGLE = frozenset({"cpu", "mps", "meta"})


def target(device: str) -> torch.device:
    """The device that profiles mean by a name: ``cuda`` is number 0, whichever is the process's current one."""
    kind, index = machine.split_device(device)
    return torch.device(kind) if kind in _SINGLE else torch.device(kind, index)


def move(x: Any, device: torch.device, *, non_blocking: bool = False) -> Any:
    """A nest with its tensors, modules and movable objects on ``device``; what is there already comes back as is."""

    def brought(leaf: Any) -> Any:
        if isinstance(leaf, Tensor):
            if same_device(leaf.device, device):
                return leaf
            return leaf.to(device, non_blocking=non_blocking and leaf.is_pinned())
        held = [] if isinstance(leaf, nn.Module) else list(tensors(leaf))
        if held and all(same_device(tensor.device, device) for tensor in held):
            return leaf
        moved = leaf.to(device)
        return leaf if moved is None else moved  # an object may move itself and return nothing

    return map_nest(brought, x)


def move_modules(modules: Iterable[nn.Module], device: torch.device) -> None:
    """Move parameters and buffers in place, as ``Module.to`` does: Parameter objects stay the same objects."""
    for module in modules:
        here = [*module.parameters(), *module.buffers()]
        if not all(same_device(tensor.device, device) for tensor in here):
            module.to(device)


def only_device(modules: Iterable[nn.Module]) -> torch.device | None:
    """The one device all parameters and buffers are on; None where there are several, or none."""
    held = [h for module in modules for part in module.modules() for h in (part._parameters, part._buffers)]
    found = {tensor.device for tensors in held for tensor in tensors.values() if tensor is not None}
    return found.pop() if len(found) == 1 else None


def move_optimizer(optimizer: torch.optim.Optimizer, device: torch.device | None = None) -> None:
    """Move existing optimizer state in place, to ``device`` or (None) next to its parameters, which stay as they are.

    Scalar step counters stay on the CPU unless the optimizer wants them on the device (capturable or fused), which is
    where ``load_state_dict`` leaves them too.
    """
    for group in optimizer.param_groups:
        on_device = bool(group.get("capturable") or group.get("fused"))
        for parameter in group["params"]:
            state = optimizer.state.get(parameter)
            if not isinstance(state, dict):
                continue
            for key, value in state.items():
                if key == "step" and isinstance(value, Tensor) and not on_device:
                    continue
                state[key] = move(value, parameter.device if device is None else device)


def synchronize(device: str) -> None:
    """Wait for everything issued to an accelerator, through its own device module; nothing to wait for on the CPU."""
    waited = target(device)
    if waited.type == "cpu":
        return
    module = torch.get_device_module(waited)
    if waited.type == "mps":  # its function takes no device
        module.synchronize()
    else:
        module.synchronize(waited)


def same_device(a: torch.device, b: torch.device) -> bool:
    """Whether two devices of torch are one: ``cuda`` is the process's current one, number 0 unless it set another."""
    if a.type != b.type:
        return False
    if a.type == "cpu" or a.index == b.index:
        return True
    current = machine.split_device(machine.current_device(a.type))[1]
    return (current if a.index is None else a.index) == (current if b.index is None else b.index)
