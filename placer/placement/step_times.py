"""Real step times, recorded through ``Placement.step``: kept, saved now and then, and reported when they drift away."""

from __future__ import annotations

import contextlib
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from operator import attrgetter
from statistics import median, quantiles

import torch

from placer.errors import PlacerWarning
from placer.placement.moving import synchronize
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
        prediction = predictions[device]
        self._limit = max(prediction.high, TOLERATED * prediction.step_seconds)
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
        prediction = self._predictions[self._device]
        others = [p for name, p in self._predictions.items() if name != self._device and p.fits]
        best = min(others, key=attrgetter("step_seconds"), default=prediction)
        if best is not prediction and best.step_seconds < typical:
            why = (
                f"{best.device} would have been faster, with {format_seconds(best.step_seconds)} by its prediction; "
                "the next choose() of this workload uses the recorded times"
            )
        else:
            why = (
                "the machine has changed since calibration, or something else is running on it; "
                "if it stays like this, run: placer calibrate"
            )
        return (
            f"steps take {format_seconds(typical)} on {self._device} and were predicted to take "
            f"{format_seconds(prediction.low)} to {format_seconds(prediction.high)}: {why}"
        )


#: Step times kept in memory.
RECENT_STEPS = 1000
#: On an accelerator every this many steps waits for the device, so that the time of the steps between is real.
SYNC_EVERY = 32
#: The first steps warm up (allocation, kernel selection) and are not recorded.
WARM_UP_STEPS = 3
#: Seconds of stepping before the first write of observed step times into the history file, and between later ones.
FIRST_RECORD_SECONDS = 1.0
RECORD_EVERY_SECONDS = 30.0


class StepTimes:
    """Real step times on one device, in seconds.

    ``record`` is given a summary of them now and then, for later decisions: the median, what 90 % of them lay between,
    and how many there are. ``drift`` says when they have left the predicted interval. ``clock`` is injectable for
    tests.
    """

    def __init__(
        self,
        device: str,
        clock: Callable[[], float] = time.perf_counter,
        *,
        drift: Drift | None = None,
        record: Callable[[float, float, float, int], None] | None = None,
    ) -> None:
        self.device = device
        self.recent: deque[float] = deque(maxlen=RECENT_STEPS)
        self.seen = 0
        self._clock = clock
        self._asynchronous = torch.device(device).type != "cpu"
        self._next_record: float | None = None
        self._drift = drift
        self._write = record

    def median(self) -> float | None:
        """Median seconds of the recent steps, None before any were recorded."""
        return median(self.recent) if self.recent else None

    def step(self) -> AbstractContextManager[None]:
        """Time the body. An accelerator is waited for before and after, so only one step in ``SYNC_EVERY`` is."""
        self.seen += 1
        if self.seen <= WARM_UP_STEPS or (self._asynchronous and self.seen % SYNC_EVERY):
            return contextlib.nullcontext()
        return self._timed()

    @contextlib.contextmanager
    def _timed(self) -> Iterator[None]:
        """A step that raises is not recorded."""
        if self._asynchronous:
            synchronize(self.device)
        start = self._clock()
        yield
        if self._asynchronous:
            synchronize(self.device)
        now = self._clock()
        self.add(now - start, now)

    def add(self, seconds: float, now: float) -> None:
        """A step that ended at ``now`` by the clock."""
        self.recent.append(seconds)
        if self._next_record is None:
            self._next_record = now + FIRST_RECORD_SECONDS
        if now >= self._next_record:
            self._next_record = now + RECORD_EVERY_SECONDS
            self._record()
        if self._drift is not None and (message := self._drift.add(seconds, now)):
            self._drift = None
            warnings.warn(PlacerWarning(message), stacklevel=4)

    def _record(self) -> None:
        if self._write is None:
            return
        times = list(self.recent)
        cuts = quantiles(times, n=20, method="inclusive") if len(times) > 1 else times * 2
        middle = median(times)  # of equal times, quantiles are rounded to either side of it
        self._write(middle, min(cuts[0], middle), max(cuts[-1], middle), len(times))
