"""One published step beside its prediction."""

from __future__ import annotations

from dataclasses import dataclass

#: Share of a step's time that the device is busy from which on the device bounds it.
DEVICE_BOUND = 0.8


@dataclass(frozen=True)
class PricedStep:
    """One published step beside what is predicted for it; seconds throughout."""

    source: str
    gpu: str
    network: str
    family: str
    mode: str
    dtype: str
    batch: int
    measured: float
    predicted: float
    low: float
    high: float
    busy: float
    roofline: float
    peak: float
    provenance: str
    held_out: str

    @property
    def device_bound(self) -> bool:
        """Whether the device is busy nearly all of the predicted step."""
        return self.busy >= DEVICE_BOUND * self.predicted
