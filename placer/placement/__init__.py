"""Moves models, optimizers and batches; times real steps, and tells when they have left their prediction."""

from placer.placement.batches import MovedBatches, Staging, staging
from placer.placement.moving import (
    Optimizers,
    Refused,
    all_or_nothing,
    immovable,
    instances,
    is_plain,
    move,
    move_modules,
    move_optimizer,
    only_device,
    relocate,
    relocate_or_stay,
    synchronize,
    target,
)
from placer.placement.step_times import Drift, StepTimes

__all__ = [
    "Drift", "MovedBatches", "Optimizers", "Refused", "Staging", "StepTimes", "all_or_nothing", "immovable",
    "instances", "is_plain", "move", "move_modules", "move_optimizer", "only_device", "relocate", "relocate_or_stay",
    "staging", "synchronize", "target",
]  # fmt: skip
