"""Hugging Face accelerate: ``Accelerator(cpu=...)``.

>>> placement = choose(model, batch, optimizer=optimizer)
>>> accelerator = Accelerator(cpu=cpu(placement))
"""

from __future__ import annotations

from typing import Any

import torch

import placer
from placer.answer import Placement


def choose(model: torch.nn.Module, batch: Any, **workload: Any) -> Placement:
    """Predict where ``model`` finishes first on inputs like ``batch``; nothing is moved: ``prepare`` does that.

    ``batch`` is what the model is called with: a mapping by keyword, a tuple by position. ``workload``: other arguments
    of ``placer.choose``. Call this before the first ``Accelerator``: the process keeps the device it is made for.

    Raises ValueError, TypeError for a wrong argument.
    """
    return placer.choose(model, batch=batch, move=False, **workload)


def cpu(placement: Placement) -> bool:
    """The value for ``Accelerator(cpu=...)``: whether to stay on the CPU although there may be an accelerator."""
    return placement.device.type == "cpu"
