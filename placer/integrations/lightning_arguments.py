"""What the arguments of Lightning's ``Trainer`` say of a fit: how often each step runs, and in which precision."""

from __future__ import annotations

import math
from typing import Any

import torch

from placer.integrations.training_loops import whole

#: The precisions that do not convert the module, and their dtype of autocast.
_PRECISIONS = {
    None: None, 32: None, "32": None, "32-true": None, 16: torch.float16, "16": torch.float16,
    "16-mixed": torch.float16, "bf16": torch.bfloat16, "bf16-mixed": torch.bfloat16,
}  # fmt: skip


def batches_of(which: str, loader: Any, limit: int | float | None) -> int:
    """Batches of ``loader`` in an epoch. ``limit``: at most so many, or this share of them, as ``Trainer`` takes it."""
    if isinstance(limit, int):
        limit = whole(f"limit_{which}_batches", limit, least=int(which == "train"))
    try:
        length = len(loader)
    except TypeError:
        if isinstance(limit, int):
            return limit
        raise TypeError(f"the {which} loader has no length: give limit_{which}_batches a number of batches") from None
    if limit is not None and not isinstance(limit, (int, float)):
        raise TypeError(f"limit_{which}_batches must be a number of batches or a share of them, not {limit!r}")
    found = length if limit is None else min(limit, length) if isinstance(limit, int) else int(length * limit)
    if found < 1 and which == "train":
        raise ValueError("the train loader gives no batch, so there is no step to price")
    return found


def check_priced(trainer: dict[str, Any]) -> None:
    """Raise ValueError for an argument that makes another fit of it."""
    for name in ("fast_dev_run", "overfit_batches"):
        if trainer.get(name):
            raise ValueError(f"{name}={trainer[name]!r} tries a fit out and is not priced: leave it out of a job")


def validations(batches: int, interval: Any, every: int | None, *, trained: int) -> float:
    """Validation runs in an epoch, given ``val_check_interval`` and ``check_val_every_n_epoch``.

    Where the fit ends after ``trained`` of its ``batches``, only those until then.
    """
    if interval is not None and (isinstance(interval, bool) or not isinstance(interval, (int, float)) or interval <= 0):
        raise ValueError(f"val_check_interval must be a number above 0 for a job, not {interval!r}")
    if trained < batches:
        between = interval if isinstance(interval, int) else max(int(batches * (interval or 1.0)), 1)
        return trained // between if every in (None, 1) else 0.0
    times = 1.0 if interval is None else batches / interval if isinstance(interval, int) else float(int(1.0 / interval))
    return times / (every or 1)


def fit_of(trainer: dict[str, Any], batches: int, accumulate: int) -> tuple[int, int | None]:
    """Batches that ``fit`` trains on in an epoch, fewer where ``max_steps`` ends it in the first, and its epochs.

    The epochs are None where nothing limits them.
    """
    epochs, steps = trainer.get("max_epochs"), whole("max_steps", trainer.get("max_steps", -1), least=-1)
    updates = math.ceil(batches / accumulate)
    if 0 < steps < updates:
        return steps * accumulate, 1
    limits = [epochs if epochs and epochs > 0 else math.inf, math.ceil(steps / updates) if steps > 0 else math.inf]
    return batches, None if min(limits) == math.inf else int(min(limits))


def autocast_of(precision: Any) -> torch.dtype | None:
    """The dtype of autocast for ``precision``; None for float32. Raises ValueError where the module is converted."""
    if precision not in _PRECISIONS:
        accepted = ", ".join(sorted({str(name) for name in _PRECISIONS if isinstance(name, str)}))
        raise ValueError(f"precision must be one of {accepted} for a job, not {precision!r}: others convert the module")
    return _PRECISIONS[precision]
