"""Moves models, optimizers and batches; times real steps, and tells when they have left their prediction."""

from placer.placement.batches import MovedBatches, Staging, staging
from placer.placement.moving import move, move_modules, move_optimizer, only_device, same_device, synchronize, target
from placer.placement.relocation import Optimizers, Refused, anchor, move_or_stay, relocate, relocate_or_stay
from placer.placement.step_times import Drift, StepTimes

__all__ = [
    "Drift",
    "MovedBatches",
    "Optimizers",
    "Refused",
    "Staging",
    "StepTimes",
    "anchor",
    "move",
    "move_modules",
    "move_optimizer",
    "move_or_stay",
    "only_device",
    "relocate",
    "relocate_or_stay",
    "same_device",
    "staging",
    "synchronize",
    "target",
]
