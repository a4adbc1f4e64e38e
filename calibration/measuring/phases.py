"""Tells the phases of a training step apart: the clock is read where one phase ends and the next begins.

One look at the clock takes 50 nanoseconds. What a phase takes beyond its ops is then charged to what goes on in it:
Python around modules in forward, autograd's engine in backward, the optimizer's loop in the update.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Phases:
    """Seconds of each phase. Forward includes the loss; the update begins with clearing the old gradients."""

    forward: float
    backward: float
    update: float

    def scaled(self, factor: float) -> Phases:
        """All phases, ``factor`` times as long."""
        return Phases(factor * self.forward, factor * self.backward, factor * self.update)


@dataclass(frozen=True, slots=True)
class Ends:
    """The clock once the old gradients were cleared, and at the ends of forward and backward (seconds).

    A training step that returns these is timed phase by phase.
    """

    cleared: float
    forward: float
    backward: float

    def phases(self, start: float, end: float) -> Phases:
        """The phases of a step that ran from ``start`` to ``end`` by the same clock."""
        update = self.cleared - start + end - self.backward
        return Phases(self.forward - self.cleared, self.backward - self.forward, update)


def typical(seen: Sequence[Phases], seconds: float) -> Phases | None:
    """The median phases, scaled to a step of ``seconds``; None where none were seen."""
    if not seen:
        return None
    middle = Phases(
        statistics.median(phases.forward for phases in seen),
        statistics.median(phases.backward for phases in seen),
        statistics.median(phases.update for phases in seen),
    )
    return middle.scaled(seconds / max(middle.forward + middle.backward + middle.update, 1e-9))
