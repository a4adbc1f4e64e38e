"""A question in the words in which it was asked: equal words need not be checked and understood a second time."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import torch

from placer.workload.signature import callable_signature, optimizer_signature, signature


def words(
    batch_shape: Any,
    example: Any,
    mode: Any,
    loss: Any,
    optimizer: Any,
    steps: Any,
    data: Any,
    autocast: Any,
    devices: Any,
    threads: Any,
    measure: Any,
) -> Hashable | None:
    """Equal for arguments of ``choose`` that mean the same for one model in one state; None where one is wrong.

    What it holds need not have a hash: whoever keeps it finds out.
    Types count where Python calls values of different types equal: ``steps=True`` is refused, ``steps=1`` is not.
    """
    if not (optimizer is None or isinstance(optimizer, (str, torch.optim.Optimizer))):
        return None
    return (
        signature(batch_shape), signature(example), mode, callable_signature(loss), optimizer_signature(optimizer),
        type(steps), steps, data, type(autocast), autocast, signature(devices), threads, measure,
    )  # fmt: skip
