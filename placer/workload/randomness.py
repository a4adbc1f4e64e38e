"""Work that draws random numbers, without a trace of it in what is drawn later."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch


@contextlib.contextmanager
def same_randomness(devices: Sequence[str] = ()) -> Iterator[None]:
    """Leave the generators of torch (the CPU's and those of ``devices``), numpy and Python as they were."""
    python, numpy_state = random.getstate(), np.random.get_state()  # noqa: NPY002 - the global state is what is kept
    found = [torch.device(device) for device in devices if torch.device(device).type != "cpu"]
    kind = found[0].type if found else "cuda"
    indices = [device.index or 0 for device in found if device.type == kind]
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
    found = (getattr(owner, "generator", None) for owner in owners)
    states = {id(g): (g, g.get_state()) for g in found if isinstance(g, torch.Generator)}
    fresh = getattr(loader, "_iterator", None) is None
    try:
        with same_randomness():
            yield
    finally:
        for generator, state in states.values():
            generator.set_state(state)
        if fresh and getattr(loader, "_iterator", None) is not None:
            loader._iterator = None
