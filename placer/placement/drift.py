"""Tells when real steps have left the predicted interval for good, and what that means for the choice.

Only slower steps matter: faster ones make the choice more right, not less, and go into the history like all others.
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median

from placer.pricing import Prediction
from placer.units import format_seconds

#: Steps whose median is looked at together, and how many such windows in a row must be too slow ...
WINDOW = 20
WINDOWS = 3
#: ... for at least this long: another job that runs for some seconds is not "for good".
SECONDS = 30.0
#: Steps up to this much slower than predicted are never complained about, however narrow the interval.
TOLERATED = 1.25


class Drift:
    """Watches the steps on ``device`` against its prediction; ``predictions`` are those of all devices."""

    def __init__(self, device: str, predictions: Mapping[str, Prediction]) -> None:
        self._device = device
        self._predictions = predictions
        own = predictions[device]
        self._limit = max(own.high, TOLERATED * own.step_seconds)
        self._window: list[float] = []
        self._slow_windows = 0
        self._slow_since = 0.0

    def add(self, seconds: float, now: float) -> str | None:
        """A step that ended at ``now``; the text of the warning once the steps have been too slow for long enough."""
        if not self._window and not self._slow_windows:
            self._slow_since = now - seconds
        self._window.append(seconds)
        if len(self._window) < WINDOW:
            return None
        typical = median(self._window)
        self._window.clear()
        if typical <= self._limit:
            self._slow_windows = 0
            return None
        self._slow_windows += 1
        if self._slow_windows < WINDOWS or now - self._slow_since < SECONDS:
            return None
        return self._message(typical)

    def _message(self, typical: float) -> str:
        own = self._predictions[self._device]
        seen = (
            f"steps take {format_seconds(typical)} on {self._device} and were predicted to take "
            f"{format_seconds(own.low)} to {format_seconds(own.high)}"
        )
        others = [p for name, p in self._predictions.items() if name != self._device and p.fits]
        best = min(others, key=lambda p: p.step_seconds, default=None)
        if best is not None and best.step_seconds < typical:
            return (
                f"{seen}: {best.device} would have been faster, with {format_seconds(best.step_seconds)} by its "
                "prediction; the next choose() of this workload uses what was seen"
            )
        return (
            f"{seen}: the machine has changed since calibration, or something else is running on it; "
            "if it stays like this, run: placer calibrate"
        )
