"""Times the fixed networks in three rounds, at the start, in the middle and near the end of an accelerator's time.

What they take together is the pace of the host; what the rounds differ by is how much it changes within a minute.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from placer.calibration.benchmarks.fixed import PACE, probes
from placer.calibration.benchmarks.probe import Probe
from placer.calibration.measuring.bench import Bench, attempt
from placer.calibration.measuring.journal import Journal

#: Shares of the time after which a round begins, and share of it that a round takes at the most.
ROUNDS, ROUND_SHARE = (0.0, 0.45, 0.85), 0.13


@dataclass
class PaceRounds:
    """The rounds of one target, those of an interrupted run included; ``seconds`` is all the time that it has."""

    bench: Bench
    journal: Journal
    seconds: float
    probes: Sequence[Probe] = field(default_factory=probes)

    def run_due(self) -> None:
        """Measure a round if one is due. Networks that there is no time for are left out of it."""
        key = self.bench.device, self.bench.threads
        seen = Counter(step.name for step in self.journal.of(*key) if step.family == PACE)
        done = max(seen.values(), default=0)
        spent = self.journal.seconds.get(key, 0.0)
        if done >= len(ROUNDS) or spent < ROUNDS[done] * self.seconds:
            return
        clock = self.bench.clock
        begun = clock()
        for probe in self.probes:
            start = clock()
            if start - begun >= ROUND_SHARE * self.seconds:
                return
            observation = attempt(self.bench, probe, seconds=0.0, journal=self.journal, whole=True)
            took = clock() - start
            if observation is None:
                self.journal.seconds[key] = self.journal.seconds.get(key, 0.0) + took
            else:
                self.journal.add(observation, took)
