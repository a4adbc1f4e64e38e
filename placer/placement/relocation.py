"""Puts a workload where it was decided to run, or leaves it where it is: nobody else touches the user's objects."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from placer.decision.decision import Decision
from placer.errors import first_line
from placer.machine import host as machine
from placer.placement.before_move import BeforeMove
from placer.placement.moving import move_modules, move_optimizer, only_device, same_device
from placer.placement.placement import Placement
from placer.workload.arguments import strict
from placer.workload.workload import Workload


def place(
    placement: Placement,
    workload: Workload,
    optimizer: str | torch.optim.Optimizer | None,
    move: bool,
    threads: str,
    known: torch.device | None = None,
) -> Placement:
    """The move: the only place where the user's objects are touched. ``known`` is where the model is for certain."""
    if not move:
        return placement
    device = torch.device(placement.device)
    if known is None or not same_device(known, device):
        move_modules(workload.modules, device)
    if isinstance(optimizer, torch.optim.Optimizer):
        move_optimizer(optimizer, device)
    if threads == "tune" and device.type == "cpu" and placement.threads != torch.get_num_threads():
        torch.set_num_threads(placement.threads)
    return placement


def place_or_stay(
    placement: Placement,
    workload: Workload,
    optimizer: str | torch.optim.Optimizer | None,
    move: bool,
    threads: str,
    allowed: Sequence[str] | None,
    known: torch.device | None = None,
) -> Placement:
    """The move; or, where the device refuses it (full, gone, a driver too old), everything back where it was.

    Raises what torch raised under ``PLACER_STRICT=1``, and where there is no other device to stay on.
    """
    if not move:
        return placement
    here = known or only_device(workload.modules)  # known: no walk through a model that was recognised
    stays = here is None or same_device(here, torch.device(placement.device))
    before = None if stays else BeforeMove(workload.modules, optimizer)
    try:
        return place(placement, workload, optimizer, move, threads, known)
    except RuntimeError as error:
        if before is None:
            raise
        before.restore()
        home = machine.normal_device(str(here))
        if strict() or home not in (machine.available_devices() if allowed is None else allowed):
            raise
        reason = (
            f"{home}: the move to {placement.device} failed ({type(error).__name__}: {first_line(error)}); "
            f"free memory on {placement.device} or set PLACER_DEVICE={home}"
        )
        decision = Decision(home, torch.get_num_threads(), None, reason)
        return Placement(decision, placement.predictions, pinned=workload.data == "pinned", explain=placement.explain)
