"""Puts a workload on a device, or leaves it where it is: nobody else touches the user's objects."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import nn

from placer import machine
from placer.errors import PlacerError, first_line, is_out_of_memory
from placer.placement.anchored import immovable
from placer.placement.before_move import BeforeMove, Optimizers, instances
from placer.placement.moving import move_modules, move_optimizer, only_device, same_device, target
from placer.workload import Workload, strict


@dataclass(frozen=True)
class Refused:
    """Nothing was moved: everything is on ``home`` as before, and ``reason`` says why.

    Of a model that has no memory yet, ``home`` is the device where it should get some.
    """

    home: str
    reason: str


def relocate(
    workload: Workload,
    optimizer: Optimizers,
    device: str,
    *,
    threads: int | None = None,
    known: torch.device | None = None,
) -> None:
    """Move a workload's modules and the state of the optimizer (or of several) to ``device``, in place.

    ``threads``: the number of CPU threads to set where that is the CPU; None: as it is. ``known`` is where the model is
    for certain. What is ``immovable`` stays. Raises what torch raises where the device refuses.
    """
    there = target(device)
    is_there = known is not None and same_device(known, there)
    if is_there or immovable(workload.modules) is None:
        if not is_there:
            move_modules(workload.modules, there)
        for instance in instances(optimizer):
            move_optimizer(instance, there)
    if threads is not None and there.type == "cpu" and threads != torch.get_num_threads():
        torch.set_num_threads(threads)


def relocate_or_stay(
    workload: Workload,
    optimizer: Optimizers,
    device: str,
    *,
    allowed: Sequence[str] | None,
    threads: int | None = None,
    known: torch.device | None = None,
) -> Refused | None:
    """``relocate``; where the device refuses (full, gone, a driver too old), everything is put back where it was.

    ``allowed`` are the devices the caller chooses from, None: all of this machine. Raises what was raised under
    ``PLACER_STRICT=1``, where there is no other device to stay on, and where the user interrupts. A model that is
    ``immovable`` is no error, but a PlacerError under ``PLACER_STRICT=1``.
    """
    here = known or only_device(workload.modules)  # known: no walk through a model that was recognised
    if here is not None and same_device(here, target(device)):
        relocate(workload, optimizer, device, threads=threads, known=here)
        return None
    moving = partial(relocate, workload, optimizer, device, threads=threads, known=known)
    return move_or_stay(moving, workload.modules, optimizer, device, allowed=allowed)


def move_or_stay(
    moving: Callable[[], None],
    modules: Sequence[nn.Module],
    optimizer: Optimizers,
    device: str,
    *,
    allowed: Sequence[str] | None,
) -> Refused | None:
    """Run ``moving``, which moves ``modules`` and optimizer states to ``device`` (others may stay elsewhere).

    Where it fails, everything is put back; see ``relocate_or_stay``.
    """
    kept = immovable(modules)
    if kept is not None:
        return _left(*kept, machine.normal_device(device))
    held = (tensor for module in modules for tensor in (*module.parameters(), *module.buffers()))
    here = only_device(modules) or next((tensor.device for tensor in held), torch.device("cpu"))
    before = BeforeMove(modules, optimizer)
    try:
        moving()
        return None
    except BaseException as error:
        before.restore()
        if not isinstance(error, Exception):
            raise
        home = machine.normal_device(str(here))
        if strict() or home not in (machine.available_devices() if allowed is None else allowed):
            raise
        remedy = f"free memory on {device} or " if is_out_of_memory(error) else ""
        return Refused(
            home,
            f"{home}: the move to {device} failed ({type(error).__name__}: {first_line(error)}); "
            f"{remedy}set PLACER_DEVICE={home}",
        )


def _left(home: str | None, why: str, device: str) -> Refused | None:
    """What to say of a model that is left as it is; nothing where ``device`` is where it begins."""
    if home == device:
        return None
    refused = Refused(home or device, f"{home or device}: the model was not moved, as {why}")
    if strict():
        raise PlacerError(refused.reason)
    return refused
