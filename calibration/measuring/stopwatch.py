"""Times one step whole, with and without the event recorder, in turns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from placer.calibration.measuring.recording import Recorded, record, whole
from placer.calibration.measuring.speed_probe import STRETCH, SpeedProbe, at_usual_speed, watched
from placer.calibration.measuring.step_timing import Ends, Phases

#: Seconds from which on a step is long: it repeats itself well enough to be timed less often.
LONG_STEP = 0.02
#: Recorded steps where steps are long.
LEAST_RECORDED = 4
#: Untimed steps after the recorder, where they are not long: they take 1.4, 1.15 and 1.07 times what later ones take.
AFTER_RECORDING = 3


@dataclass(frozen=True, slots=True)
class Whole:
    """One undisturbed step: its seconds, and its phases where it told them."""

    seconds: float
    phases: Phases | None


@dataclass(frozen=True)
class Stopwatch:
    """Times ``step``; with a ``speed_probe``, steps at another speed than the usual one are left out.

    ``synchronize`` waits for the device; None on the CPU. ``once``: seconds that a step takes, about.
    """

    step: Callable[[], object]
    synchronize: Callable[[], None] | None
    clock: Callable[[], float]
    speed_probe: SpeedProbe | None
    once: float = 0.0

    def seconds(self) -> float:
        return self.run().seconds

    def run(self) -> Whole:
        """Run one undisturbed step. Its phases are known where ``step`` returns ``Ends``."""
        start = self.clock()
        returned = self.step()
        if self.synchronize is not None:
            self.synchronize()
        end = self.clock()
        if isinstance(returned, Ends) and self.synchronize is None:
            return Whole(end - start, returned.phases(start, end))
        # A host that runs ahead of its device leaves a phase long before the device does.
        return Whole(end - start, None)

    def in_turns(
        self, before: int, recorded: int, after: int
    ) -> tuple[list[tuple[Whole, float]], list[tuple[Recorded, float]]]:
        """(undisturbed steps, recorded steps), each with its reading (seconds).

        Undisturbed steps run ``before`` and ``after`` the ``recorded`` ones, so that drift shifts both alike. In the
        first recorded step the recorder's memory is fresh and its code is cold: it counts only where steps are long.
        Raises KernelsLostError where kernels are missing in every recorded step.
        """
        resume = self.seconds if self.once < STRETCH else None
        around = watched(self.speed_probe, self.run, before, resume=resume)
        runs = record(self.seconds, recorded, accelerated=self.synchronize is not None, speed_probe=self.speed_probe)
        for _ in range(AFTER_RECORDING if self.once < LONG_STEP else 0):
            self.seconds()
        around += watched(self.speed_probe, self.run, after, resume=resume)
        runs = whole(runs[1:] if len(runs) > LEAST_RECORDED else runs)
        return at_usual_speed(self.speed_probe, around), at_usual_speed(self.speed_probe, runs)
