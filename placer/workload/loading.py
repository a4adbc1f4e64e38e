"""The seconds that a batch takes to arrive, and work that draws random numbers without a trace of it later."""

from __future__ import annotations

import contextlib
import itertools
import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset


@contextlib.contextmanager
def same_randomness(devices: Sequence[str] = ()) -> Iterator[None]:
    """Leave the generators of torch (the CPU's and those of ``devices``), numpy and Python as they were."""
    python, numpy_state = random.getstate(), np.random.get_state()  # noqa: NPY002 - the global state is what is kept
    accelerators = [device for device in map(torch.device, devices) if device.type != "cpu"]
    kind = accelerators[0].type if accelerators else "cuda"
    indices = [device.index or 0 for device in accelerators if device.type == kind]
    try:
        with torch.random.fork_rng(devices=indices, device_type=kind):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy_state)  # noqa: NPY002


@contextlib.contextmanager
def same_order(loader: Any) -> Iterator[None]:
    """Iterate a loader so that its next epoch is as it would have been.

    What it draws its order from is put back, and workers that it would keep for the next epoch are let go.
    """
    batches = getattr(loader, "batch_sampler", None)
    owners = (loader, getattr(loader, "sampler", None), batches, getattr(batches, "sampler", None))
    generators = (getattr(owner, "generator", None) for owner in owners)
    states = {id(g): (g, g.get_state()) for g in generators if isinstance(g, torch.Generator)}
    fresh = getattr(loader, "_iterator", None) is None
    try:
        with same_randomness():
            yield
    finally:
        for generator, state in states.values():
            generator.set_state(state)
        if fresh and getattr(loader, "_iterator", None) is not None:
            loader._iterator = None


def is_stream(loader: Any) -> bool:
    """Whether a loop over ``loader`` may go on where the last one stopped: what is taken from it is lost to training.

    A sequence, and a DataLoader that picks from its data set by index, start again.
    """
    streams = (Iterator, IterableDataset)
    parts = [loader, *(getattr(loader, name, None) for name in ("dataset", "sampler", "batch_sampler"))]
    if any(isinstance(part, streams) for part in parts):
        return True
    return not isinstance(loader, (Sequence, DataLoader)) and iter(loader) is iter(loader)


#: Batches that ``measure_loading`` takes before it looks at the clock: workers start, files are opened.
_WARM_UP = 2


@dataclass(frozen=True)
class Loading:
    """Host seconds that each step needs before it can begin: loading a batch, an environment's step.

    ``overlapped``: other processes or threads prepare the next batch while a step runs, so a step takes the longer of
    the two times. Otherwise the host does both, one after the other.

    Raises:
        TypeError, ValueError: seconds that are no number, negative or not finite.
    """

    seconds: float
    overlapped: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.seconds, bool) or not isinstance(self.seconds, (int, float)):
            raise TypeError(f"the seconds of a loading must be a number, not {self.seconds!r}")
        if not 0.0 <= self.seconds < float("inf"):
            raise ValueError(f"the seconds of a loading must be 0 or more, and finite, not {self.seconds!r}")
        if not isinstance(self.overlapped, bool):
            raise TypeError(f"overlapped must be True or False, not {self.overlapped!r}")

    @classmethod
    def of(
        cls,
        loader: Iterable[Any],
        *,
        batches: int = 20,
        limit_seconds: float = 5.0,
        clock: Callable[[], float] = time.perf_counter,
    ) -> Loading:
        """Measure ``loader``: the mean of up to ``batches`` batches, in about ``limit_seconds`` at most.

        Overlapped is a loader with workers of its own (``num_workers`` above 0). It is iterated as a training loop
        does, then left; random generators are as before afterwards. Raises ValueError for a loader
        without batches, TypeError for an iterator or an ``IterableDataset``, which may have each batch only once.
        """
        if is_stream(loader):
            raise TypeError(
                "a loader must give its batches again each epoch: give a DataLoader of a data set with indices or a "
                "list, no iterator and no IterableDataset, or time some batches: placer.Loading(seconds, overlapped)"
            )
        return measure_loading(loader, batches=batches, limit_seconds=limit_seconds, clock=clock)


def measure_loading(
    loader: Iterable[Any],
    *,
    batches: int = 20,
    limit_seconds: float = 5.0,
    clock: Callable[[], float] = time.perf_counter,
) -> Loading:
    """``Loading.of`` for any iterable, from which the batches are taken."""
    with same_order(loader):
        marks = [clock()]
        for _ in itertools.islice(loader, batches + _WARM_UP):
            marks.append(clock())
            if marks[-1] - marks[0] > limit_seconds:
                break
    if len(marks) < 2:
        raise ValueError("the loader gave no batch, so what one takes cannot be measured")
    steady = marks[min(_WARM_UP, len(marks) - 2) :]  # without the first ones where there are enough
    seconds = (steady[-1] - steady[0]) / (len(steady) - 1)
    return Loading(seconds, overlapped=getattr(loader, "num_workers", 0) > 0)
