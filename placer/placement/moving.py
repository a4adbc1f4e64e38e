"""Moving: nests of tensors, models with their losses, optimizer state: all of it, or nothing where a device refuses.

Nothing else touches the user's objects.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from placer import machine
from placer.errors import PlacerError, first_line, is_out_of_memory
from placer.nest import map_nest, tensors
from placer.workload import Workload, strict

#: Kinds of devices of which there is one, without a number.
_SINGLE = frozenset({"cpu", "mps", "meta"})


def target(device: str) -> torch.device:
    """The device that profiles mean by a name: ``cuda`` is number 0, whichever is the process's current one."""
    kind, index = machine.split_device(device)
    return torch.device(kind) if kind in _SINGLE else torch.device(kind, index)


def move(x: Any, device: torch.device, *, non_blocking: bool = False) -> Any:
    """A nest with its leaves on ``device``; what is there already comes back as is."""

    def brought(leaf: Any) -> Any:
        if isinstance(leaf, Tensor):
            if same_device(leaf.device, device):
                return leaf
            return leaf.to(device, non_blocking=non_blocking and is_plain(leaf) and leaf.is_pinned())
        if not isinstance(leaf, nn.Module):
            homes = [tensor.device for tensor in tensors(leaf)] or [leaf.device]
            if all(same_device(home, device) for home in homes):
                return leaf
        moved = leaf.to(device)
        return leaf if moved is None else moved  # an object may move itself and return nothing

    return map_nest(brought, x)


def is_plain(tensor: Tensor) -> bool:
    """Whether a tensor is one block of memory, as those that can be pinned and copied beside other work are."""
    usual = type(tensor) in (Tensor, nn.Parameter) and tensor.layout is torch.strided
    return usual and not tensor.is_nested and not tensor.is_quantized


def move_modules(modules: Iterable[nn.Module], device: torch.device) -> None:
    """Move parameters and buffers in place, as ``Module.to`` does: Parameter objects stay the same objects."""
    for module in modules:
        if not _is_on(module, device):
            module.to(device)


def _is_on(module: nn.Module, device: torch.device) -> bool:
    return all(same_device(tensor.device, device) for tensor in (*module.parameters(), *module.buffers()))


def only_device(modules: Iterable[nn.Module]) -> torch.device | None:
    """The one device all parameters and buffers are on; None where there are several, or none."""
    devices = set()
    for module in modules:
        for part in module.modules():
            for tensor in (*part._parameters.values(), *part._buffers.values()):
                if tensor is not None:
                    devices.add(tensor.device)
    return devices.pop() if len(devices) == 1 else None


def move_optimizer(optimizer: torch.optim.Optimizer) -> None:
    """Move existing optimizer state in place, next to its parameters, which stay as they are.

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
                state[key] = move(value, parameter.device)


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


#: An optimizer, its name (which has no state), several, or none.
Optimizers = str | torch.optim.Optimizer | Sequence[torch.optim.Optimizer] | None


def instances(optimizers: Optimizers) -> tuple[torch.optim.Optimizer, ...]:
    """Those of ``optimizers`` that have state."""
    if isinstance(optimizers, torch.optim.Optimizer):
        return (optimizers,)
    return () if optimizers is None or isinstance(optimizers, str) else tuple(optimizers)


class BeforeMove:
    """Parameters, gradients, buffers and optimizer state as they are now. Holds their memory; copies nothing."""

    def __init__(self, modules: Iterable[nn.Module], optimizers: Optimizers = None) -> None:
        self._parts = [part for module in modules for part in module.modules()]
        self._parameters: dict[int, tuple[nn.Parameter, Tensor, Tensor | None, Tensor | None]] = {}
        self._named: list[tuple[dict[str, Any], dict[str, Any]]] = []
        for part in self._parts:
            for p in part._parameters.values():
                if p is not None:
                    self._parameters[id(p)] = (p, p.data, p.grad, None if p.grad is None else p.grad.data)
            for entries in (part._parameters, part._buffers):
                self._named.append((entries, dict(entries)))
        self._states: list[tuple[dict[str, Any], dict[str, Any]]] = []
        for optimizer in instances(optimizers):
            for state in optimizer.state.values():
                if isinstance(state, dict):
                    self._states.append((state, dict(state)))

    def restore(self) -> None:
        """Put everything back: every Parameter is the same object, with the same values in the same memory."""
        contents: dict[int, Tensor | None] = {}
        for parameter, data, grad, grad_data in self._parameters.values():
            contents[id(parameter)], contents[id(grad)] = data, grad_data

        def back(tensor: Tensor) -> Tensor:
            data = contents.get(id(tensor))
            return tensor if data is None else data.detach()  # another object, as its content may be exchanged

        for part in self._parts:
            # Back the way that they came, which recurrent layers need; what TorchScript refuses is set below.
            with suppress(Exception), _exchanging_content():
                part._apply(back, recurse=False)
        for parameter, data, grad, grad_data in self._parameters.values():
            _set(parameter, data)
            if grad is not None and grad_data is not None:
                _set(grad, grad_data)
            parameter.grad = grad
        entries: Any
        for entries, values in self._named:
            for name, value in values.items():
                if entries[name] is not value:
                    entries[name] = value  # those of TorchScript have no other way to be written
        for state, values in self._states:
            state.update(values)


@contextmanager
def all_or_nothing(modules: Iterable[nn.Module], optimizers: Optimizers) -> Iterator[None]:
    """Where the body, which moves ``modules`` and optimizer state, raises, everything is put back where it was."""
    before = BeforeMove(modules, optimizers)
    try:
        yield
    except BaseException:
        before.restore()
        raise


@contextmanager
def _exchanging_content() -> Iterator[None]:
    """Modules that move exchange the content of their tensors, so that Parameter objects stay on every backend."""
    before = torch.__future__.get_swap_module_params_on_conversion()
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        yield
    finally:
        torch.__future__.set_swap_module_params_on_conversion(before)


def _set(tensor: Tensor, data: Tensor) -> None:
    if tensor.device != data.device:
        tensor.data = data


def immovable(modules: Sequence[nn.Module]) -> tuple[str | None, str] | None:
    """Where a model begins that was spread over devices by hand, and why it is left so; None for any other.

    One with weights on the meta device, which have no memory that could be moved, is left too; there is no place (None)
    where it has no others.
    """
    for module in modules:
        homes = _homes(module)
        if len(homes) > 1 or "meta" in homes:
            return next((home for home in homes if home != "meta"), None), f"its weights are on {' and '.join(homes)}"
    return None


def _homes(module: nn.Module) -> list[str]:
    """The devices of the parameters, in their order. Buffers go where those are, unless they have no memory."""
    held = (*module.parameters(), *(buffer for buffer in module.buffers() if buffer.is_meta))
    devices = dict.fromkeys(tensor.device for tensor in held)
    return [machine.normal_device(str(device)) for device in devices]


@dataclass(frozen=True)
class Refused:
    """Nothing was moved: everything is on ``home`` as before, and ``reason`` says why.

    Of a model that has no memory yet, ``home`` is the device where it should get some.
    """

    home: str
    reason: str


def relocate(workload: Workload, optimizer: Optimizers, device: str, *, threads: int | None = None) -> None:
    """Move a workload's modules and its loss to ``device`` in place, and the state of optimizers with the parameters.

    ``threads``: the number of CPU threads to set where that is the CPU; None: as it is. What is ``immovable`` stays.
    Raises what torch raises where the device refuses; everything is back where it was then.
    """
    there = target(device)
    if immovable(workload.modules) is None:
        elsewhere = [module for module in workload.moved if not _is_on(module, there)]
        with all_or_nothing(elsewhere, optimizer):
            move_modules(elsewhere, there)
            for instance in instances(optimizer):
                move_optimizer(instance)
    if threads is not None and there.type == "cpu" and threads != torch.get_num_threads():
        torch.set_num_threads(threads)


def relocate_or_stay(
    workload: Workload,
    optimizer: Optimizers,
    device: str,
    *,
    allowed: Sequence[str] | None,
    threads: int | None = None,
) -> Refused | None:
    """``relocate``, or stay where the device refuses (full, gone, a driver too old).

    ``allowed`` are the devices the caller chooses from, None: all of this machine. Raises what was raised under
    ``PLACER_STRICT=1``, where there is no other device to stay on, and where the user interrupts. A model that is
    ``immovable`` is no error, but a PlacerError under ``PLACER_STRICT=1``.
    """
    modules = workload.modules
    spread = immovable(modules)
    if spread is not None:
        home, why = spread[0] or machine.normal_device(device), spread[1]
        if spread[0] == machine.normal_device(device):
            return None
        refused = Refused(home, f"{home}: the model was not moved, as {why}")
        if strict():
            raise PlacerError(refused.reason)
        return refused
    held = (tensor for module in modules for tensor in (*module.parameters(), *module.buffers()))
    home = machine.normal_device(str(next((tensor.device for tensor in held), torch.device("cpu"))))
    try:
        relocate(workload, optimizer, device, threads=threads)
    except Exception as error:
        if strict() or home not in (machine.available_devices() if allowed is None else allowed):
            raise
        remedy = f"free memory on {device} or " if is_out_of_memory(error) else ""
        return Refused(
            home,
            f"{home}: the move to {device} failed ({type(error).__name__}: {first_line(error)}); "
            f"{remedy}set PLACER_DEVICE={home}",
        )
    return None
