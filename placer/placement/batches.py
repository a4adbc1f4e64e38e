"""A loader whose batches arrive on an accelerator, copied beside the computation where that is faster.

No batch is fetched ahead of time: the order in which the loader and the script draw random numbers stays what it is.
The overlap comes from the device's own queue: while it still works on one step, the next batch is copied on another
stream, from pinned memory. The loader is asked for a further batch when that copy has ended, since it may write to the
same memory again.
"""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from placer.errors import ProfileError
from placer.nest import leaves, map_nest
from placer.placement.moving import is_plain, move
from placer.profile import Profile

log = logging.getLogger(__name__)


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


class _Copier:
    """Brings batches to a device: what is in pinned memory, or faster by way of it, beside the computation.

    Tensors that are one block of memory go that way; torch cannot pin sparse or nested ones, nor tell its allocator
    which stream uses them. They, and all else, go by a plain copy.
    """

    def __init__(self, device: torch.device, stage: Staging | None) -> None:
        self.device, self.stage = device, stage
        #: The stream with copies that may still read the loader's memory.
        self._copying: Any = None

    def wait(self) -> None:
        """Return when the loader may write to the memory of its last batch again."""
        copying, self._copying = self._copying, None
        if copying is not None:
            copying.synchronize()

    def moved(self, batch: Any) -> Any:
        tensors = [leaf for leaf in leaves(batch) if isinstance(leaf, Tensor)]
        copied = self._pinned([tensor for tensor in tensors if tensor.device.type == "cpu" and is_plain(tensor)])
        if not copied:
            return move(batch, self.device)
        copies = _side_stream(self.device)
        if copies is not None:
            copied = self._copied_beside(copied, copies)
        return move(map_nest(lambda leaf: copied.get(id(leaf), leaf), batch), self.device)

    def _pinned(self, tensors: list[Tensor]) -> dict[int, Tensor]:
        """Those of ``tensors`` that are in pinned memory, by identity, and copies of the others there if that pays."""
        pinned = {id(tensor): tensor for tensor in tensors if tensor.is_pinned()}
        pageable = [tensor for tensor in tensors if id(tensor) not in pinned]
        if pageable and self.stage is not None and self.stage.pays(sum(t.nbytes for t in pageable), len(pageable)):
            try:
                pinned.update({id(tensor): tensor.pin_memory() for tensor in pageable})
            except RuntimeError as error:  # the system locks no more memory for this process
                log.debug("batches are copied from pageable memory: %s", error)
                self.stage = None
        return pinned

    def _copied_beside(self, pinned: dict[int, Tensor], copies: Any) -> dict[int, Tensor]:
        """Copies on the device, made on a stream of their own, for which the computation waits."""
        module = torch.get_device_module(self.device)
        with module.stream(copies):
            copied = {number: tensor.to(self.device, non_blocking=True) for number, tensor in pinned.items()}
        self._copying = copies
        computing = module.current_stream(self.device)
        computing.wait_stream(copies)
        for tensor in copied.values():
            tensor.record_stream(computing)  # its memory is not reused before the step has read it
        return copied


class MovedBatches:
    """A loader whose batches are on ``device``, and which is ``loader`` in all else.

    ``next``, ``[]`` and a generator's ``send`` give batches that were moved, ``iter`` and ``reversed`` iterators that
    are one of these again. Attributes are the loader's, read and written. It has those special methods that the loader
    has, and no others. ``isinstance`` says of it what it says of the loader; its ``type`` is another.
    """

    __slots__ = ("__weakref__", "_placer_copier", "_placer_loader")  # as no loader calls an attribute

    def __new__(cls, loader: Any, device: torch.device, stage: Staging | None = None) -> MovedBatches:
        return _moving(loader, _Copier(device, stage))

    def __reduce__(self) -> Any:
        copier = self._placer_copier
        return MovedBatches, (self._placer_loader, copier.device, copier.stage)

    def __del__(self) -> None:
        # A loop that is left early lets go of its iterator, and the script may write to the loader's memory then.
        with contextlib.suppress(RuntimeError):
            self._placer_copier.wait()

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return type(self._placer_loader)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._placer_loader, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._placer_loader, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._placer_loader, name)


def _moving(loader: Any, copier: _Copier) -> MovedBatches:
    kind: Any = type(loader)
    moved: MovedBatches = object.__new__(_class_for(kind))
    object.__setattr__(moved, "_placer_loader", loader)
    object.__setattr__(moved, "_placer_copier", copier)
    return moved


@functools.lru_cache(maxsize=64)
def _class_for(kind: type) -> type[MovedBatches]:
    """What stands for loaders of one class: Python looks for special methods in the class, not in the object."""
    methods = {name: make(name) for name, make in _SPECIAL.items() if getattr(kind, name, None) is not None}
    return type("MovedBatches", (MovedBatches,), {"__slots__": (), **methods})


def _giving_a_batch(name: str) -> Callable[..., Any]:
    def method(self: MovedBatches, *args: Any, **kwargs: Any) -> Any:
        self._placer_copier.wait()
        return self._placer_copier.moved(getattr(self._placer_loader, name)(*args, **kwargs))

    return method


def _giving_an_iterator(name: str) -> Callable[..., Any]:
    def method(self: MovedBatches) -> Any:
        iterator = getattr(self._placer_loader, name)()
        return self if iterator is self._placer_loader else _moving(iterator, self._placer_copier)

    return method


def _as_it_is(name: str) -> Callable[..., Any]:
    def method(self: MovedBatches, *args: Any) -> Any:
        result = getattr(self._placer_loader, name)(*args)
        return self if result is self._placer_loader else result

    return method


#: The methods that Python looks for in a loader's class, and a generator's own, with what makes each of them.
_SPECIAL: dict[str, Callable[[str], Callable[..., Any]]] = {
    **dict.fromkeys(("__next__", "__getitem__", "send", "throw"), _giving_a_batch),
    **dict.fromkeys(("__iter__", "__reversed__"), _giving_an_iterator),
    **dict.fromkeys(
        ("__len__", "__length_hint__", "__bool__", "__contains__", "__setitem__", "__delitem__"), _as_it_is
    ),
    **dict.fromkeys(("__enter__", "__exit__"), _as_it_is),
}


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
