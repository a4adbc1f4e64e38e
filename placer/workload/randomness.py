"""Work that draws random numbers, without a trace of it in what is drawn later."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator, Sequence

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
