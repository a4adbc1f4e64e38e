"""Measures probes on one device until its share of the time is used."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace

from placer.calibration.benchmarks.probe import Probe
from placer.calibration.build import enough
from placer.calibration.measuring.attempts import attempt
from placer.calibration.measuring.bench import MOST_LOST, WAITING, Bench
from placer.calibration.measuring.clocks import ClockWatch
from placer.calibration.measuring.interference import Load
from placer.calibration.measuring.journal import Journal
from placer.calibration.measuring.observation import StepObservation
from placer.calibration.measuring.timing import Clock
from placer.calibration.plan import Planner
from placer.calibration.progress import Progress

#: Times its share that a device may take on a slow or contended machine until there is anything to fit.
OVERTIME = 4.0
#: Share of probes that may be thrown away because other programs kept the cores busy meanwhile.
MOST_DISTURBED = 0.5


@dataclass
class Probing:
    """Measures what ``planner`` draws on ``bench`` until ``seconds`` are used; ``clocks`` are an accelerator's.

    No probe is begun once ``clock()`` has passed ``deadline``, however few there are.
    """

    bench: Bench
    planner: Planner
    journal: Journal
    shown: Progress
    seconds: float
    clock: Clock
    clocks: ClockWatch | None = None
    disturbed: int = 0
    deadline: float = math.inf

    def run(self) -> None:
        """Measure; raises BrokenDeviceError where an accelerator runs nothing any more."""
        key = self._key
        while (spent := self.journal.seconds.get(key, 0.0)) < self._allowed() and self.clock() < self.deadline:
            if self.bench.lost >= MOST_LOST and not self._without_recorder():
                return
            probe = self.planner.next()
            self.shown.update(spent, probe.family)
            begun, before = self.clock(), Load.now()
            observation = attempt(
                self.bench, probe, seconds=_step_seconds(probe, self.seconds), journal=self.journal
            )
            took = self.clock() - begun
            known: dict[str, float] = {}
            if observation is not None and self.clock is time.perf_counter:
                known, disturbed = self._disturbance(before)
                if disturbed:
                    self.disturbed += 1
                    observation = _doubted(observation, self.disturbed, len(self.journal.observations))
            self.planner.learn(probe.family, observation, took)
            if observation is None:
                self.journal.seconds[key] = self.journal.seconds.get(key, 0.0) + took
            else:
                self.journal.add(observation, took, known)

    @property
    def _key(self) -> tuple[str, int]:
        return self.bench.device, self.bench.threads

    def _allowed(self) -> float:
        return self.seconds * (1.0 if enough(self.journal, *self._key) else OVERTIME)

    def _disturbance(self, before: Load) -> tuple[dict[str, float], bool]:
        """(an accelerator's clocks, whether what was just timed was disturbed).

        An accelerator's step needs one core, whose speed the speed probe watches. The work of others on the many cores
        of its host says nothing of that one; its own clock does.
        """
        if self.clocks is None:
            return {}, Load.now().disturbed_since(before)
        return self.clocks.look()

    def _without_recorder(self) -> bool:
        """Go on without the recorder, which has lost the kernels of the last probes; False where that is not worth it.

        Samples of both kinds do not fit together: where there are enough of its own, they stand.
        """
        if enough(self.journal, *self._key):
            self.shown.note(f"{self.bench.device}: the recorder shows no kernels any more; what it showed is kept")
            return False
        self.bench.timer, self.bench.lost = WAITING, 0
        self.journal.use_timer(*self._key, WAITING)
        return True


def _step_seconds(probe: Probe, seconds: float) -> float:
    """Seconds of whole steps to time: those of a network are a sample, those of a block only show how noisy ops are."""
    share = 1.0 if probe.family == "network" else 0.2
    return share * min(0.06, 0.004 * seconds)


def _doubted(observation: StepObservation, disturbed: int, kept: int) -> StepObservation | None:
    """What to keep of a disturbed probe: nothing, unless the ``disturbed`` ones are many beside those ``kept``.

    On a machine that is never idle, doubtful samples are better than none.
    """
    if disturbed < MOST_DISTURBED * kept:
        return None
    return replace(observation, spread=max(observation.spread, 1.0))
