"""The reference systems: five published accounts of "CPU or GPU?", which placer has to get right first."""

from __future__ import annotations

from placer.calibration.suite.reference import from_scratch, moving_data, neural_ode, one_dimensional, surface
from placer.calibration.suite.reference.account import Case, Reference

__all__ = ["Case", "Reference", "ENTRIES"]

ENTRIES: tuple[Reference, ...] = (
    *neural_ode.ENTRIES,
    *surface.ENTRIES,
    *moving_data.ENTRIES,
    *one_dimensional.ENTRIES,
    *from_scratch.ENTRIES,
)
