"""Copies between host and device: a cost per tensor and one per byte, by direction and kind of host memory."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from simulated.device import SimulatedDevice
from simulated.pinned import is_pinned


def copy_into(target: Tensor, source: Tensor, *, non_blocking: bool) -> Tensor:
    """``target.copy_(source)``, one of them (or both) on the device."""
    mine, theirs = getattr(target, "numbers", target), getattr(source, "numbers", source)
    mine.copy_(theirs)
    if mine is not target and theirs is not source:
        owner = source.owner  # type: ignore[attr-defined]
        owner.launch((mine.nbytes + theirs.nbytes) / owner.spec.bytes_per_second, "copy_")
    elif mine is not target:
        _pay(target.owner, "h2d", theirs, non_blocking)  # type: ignore[attr-defined]
    else:
        _pay(source.owner, "d2h", mine, non_blocking)  # type: ignore[attr-defined]
    return target


def copy_out(source: Any, kwargs: dict[str, Any]) -> Tensor:
    """``source.to(...)`` another device than this one."""
    result = torch.ops.aten._to_copy.default(source.numbers, **{**kwargs, "pin_memory": None})
    _pay(source.owner, "d2h", source.numbers, False)
    return result.clone() if result is source.numbers else result


def _pay(device: SimulatedDevice, direction: str, host: Tensor, non_blocking: bool) -> None:
    """A copy waits for what was issued before it, and the host for the copy; from pinned memory it need not."""
    spec, queue = device.spec, device.queue
    pinned = is_pinned(host)
    cost = spec.copies[direction, "pinned" if pinned else "pageable"]
    seconds = cost.seconds_per_tensor + host.nbytes / cost.bytes_per_second
    if pinned and non_blocking:
        queue.launch(seconds, issue=spec.issue, latency=spec.launch)
        return
    queue.wait()
    device.clock.spend(seconds)
