"""A loader whose batches arrive on an accelerator, copied beside the computation where that is faster.

No batch is fetched ahead of time: the order in which the loader and the script draw random numbers stays what it is.
The overlap comes from the device's own queue: while it still works on one step, the next batch is copied on another
stream, from pinned memory. The loader is asked for a further batch when that copy has ended, since it may write to the
same memory again.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from placer.errors import ProfileError
from placer.nest import map_nest, tensors
from placer.placement.moving import move, same_device
from placer.profile import Profile


@dataclass(frozen=True)
class Staging:
    """Whether copying a batch into pinned memory first is faster: seconds per byte and per tensor of both ways."""

    pageable: tuple[float, float]
    pinned: tuple[float, float]
    #: Seconds per byte to read and write it once more on the host.
    host: float
    #: Seconds that a copy from pageable memory makes the host wait; one from pinned memory is queued.
    wait: float

    def pays(self, nbytes: int, count: int) -> bool:
        """For ``count`` tensors of ``nbytes`` bytes in all."""
        staged = nbytes * (self.host + self.pinned[0]) + count * self.pinned[1]
        return staged < nbytes * self.pageable[0] + count * self.pageable[1] + self.wait


def staging(profile: Profile, device: str) -> Staging | None:
    """What a profile knows of copies to ``device``; None where copies from pinned memory were not measured."""
    try:
        rates, host = profile.fit(device).rates, profile.fit("cpu").rates
        pageable, pinned = (
            (1.0 / rates[f"copy/h2d/{kind}/bytes_per_second"], rates[f"copy/h2d/{kind}/seconds_per_tensor"])
            for kind in ("pageable", "pinned")
        )
        return Staging(pageable, pinned, 2.0 / host["bytes_per_second"], rates.get("sync_seconds", 0.0))
    except (ProfileError, KeyError, ZeroDivisionError):
        return None


class MovedBatches:
    """The batches of ``loader`` on ``device``; can be iterated and measured as often as the loader can."""

    def __init__(self, loader: Iterable[Any], device: torch.device, stage: Staging | None = None) -> None:
        self._loader = loader
        self._device = device
        self._stage = stage

    def __iter__(self) -> Iterator[Any]:
        copies = _side_stream(self._device)
        for batch in self._loader:
            try:
                yield self._arrived(batch, copies)
            finally:
                if copies is not None:
                    copies.synchronize()

    def __len__(self) -> int:
        return len(self._loader)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> Any:
        # What else a loader offers (its data set, its sampler) stays reachable.
        if name.startswith("__"):  # a copy that is not filled yet has no loader to ask
            raise AttributeError(name)
        return getattr(self._loader, name)

    def _arrived(self, batch: Any, copies: Any) -> Any:
        coming = [t for t in tensors(batch) if not same_device(t.device, self._device)]
        if self._stage is not None and self._stage.pays(sum(t.nbytes for t in coming), len(coming)):
            batch = map_nest(_pinned, batch)
        if copies is None or not any(t.is_pinned() for t in tensors(batch)):
            return move(batch, self._device)
        module = torch.get_device_module(self._device)
        with module.stream(copies):
            moved = move(batch, self._device, non_blocking=True)
        computing = module.current_stream(self._device)
        computing.wait_stream(copies)
        for tensor in tensors(moved):
            if same_device(tensor.device, self._device):
                tensor.record_stream(computing)  # its memory is not reused before the step has read it
        return moved


def _pinned(leaf: Any) -> Any:
    """A tensor of the host in pinned memory; anything else as it is."""
    if not isinstance(leaf, Tensor) or leaf.device.type != "cpu" or leaf.layout != torch.strided:
        return leaf
    return leaf if leaf.is_pinned() else leaf.pin_memory()


@functools.cache
def _side_stream(device: torch.device) -> Any:
    """The process's stream for copies to a device; None where the device has no streams.

    The allocator keeps the memory of every stream apart, so each further one would hold batches of its own.
    """
    if device.type == "meta":
        return None
    module = torch.get_device_module(device)
    if not all(hasattr(module, name) for name in ("Stream", "stream", "current_stream")):
        return None
    with contextlib.suppress(RuntimeError):
        return module.Stream(device)
    return None
