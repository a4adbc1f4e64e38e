"""What is calibrated, one device at a number of CPU threads, and measuring it until its share of the time is used."""

from __future__ import annotations

import time
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from placer.calibration.benchmarks.probe import Probe
from placer.calibration.build import enough
from placer.calibration.measuring.attempts import attempt
from placer.calibration.measuring.bench import Bench
from placer.calibration.measuring.interference import Load
from placer.calibration.measuring.journal import Journal
from placer.calibration.measuring.observation import StepObservation
from placer.calibration.measuring.rates import measure_rates, recount_fresh_pages
from placer.calibration.measuring.speed_probe import SpeedProbe, probed_cores
from placer.calibration.measuring.timing import Clock, clock_resolution
from placer.calibration.plan import SHORT, Planner
from placer.calibration.progress import Progress
from placer.decision import running_with
from placer.machine import malloc

#: Time that another number of threads than the process has is worth, in times of what that one gets.
OTHER_THREADS = 0.3
#: Share of a device's time for the data-sheet rates.
RATES_SHARE = 0.08
#: Times its share that a device may take on a slow or contended machine until there is anything to fit.
OVERTIME = 4.0
#: Longest step of a probe, as a share of a device's time: a dozen of them are timed.
LONGEST_STEP = 0.0012
#: Longest step of most probes (seconds); of a few, where the budget is long; and the latter's share of a device's time.
USUAL_LONGEST, LONGEST, LONGEST_SHARE = 0.05, 0.3, 0.0003
#: Share of probes that may be thrown away because other programs kept the cores busy meanwhile.
MOST_DISTURBED = 0.5


@dataclass(frozen=True)
class Target:
    """A device at a number of CPU threads, and its share of the budget."""

    device: str
    threads: int
    share: float

    @property
    def key(self) -> tuple[str, int]:
        """What the journal files it under."""
        return self.device, self.threads

    @property
    def label(self) -> str:
        """What progress calls it."""
        return self.device if self.device != "cpu" else f"cpu, {self.threads} thread{'s' * (self.threads > 1)}"


def targets(devices: Sequence[str], quick: bool) -> list[Target]:
    """Every device at this process's number of threads; the CPU also at one and, on large machines, in between."""
    threads = torch.get_num_threads()
    others = sorted({1, max(threads // 4, 1)} - {threads}) if not quick else []
    shares: list[tuple[str, int, float]] = []
    for device in devices:
        shares.append((device, threads, 1.0))
        if device == "cpu":
            shares += [(device, count, OTHER_THREADS) for count in others]
    total = sum(share for _, _, share in shares)
    return [Target(device, count, share / total) for device, count, share in shares]


def measure(
    target: Target, seconds: float, journal: Journal, shown: Progress, clock: Clock, *, usual: float | None = None,
    drawn: int = 0,
) -> None:  # fmt: skip
    """Measure one target until ``seconds`` of it are used, what an earlier run spent included.

    ``usual``: the reading (seconds) to wait for and to keep to; None takes the machine's usual one. ``drawn``: the
    number of journals before this one, whose probes need not be drawn again.
    """
    with running_with(target.threads):
        malloc.settle()  # else probes of all sizes do it in time, and the same op costs more before than after
        shown.start(f"measuring {target.label}", seconds, done=journal.seconds.get(target.key, 0.0))
        if target.key not in journal.rates:
            shown.update(0.0, "rates")
            start = clock()
            rates = measure_rates(target.device, seconds=seconds * RATES_SHARE, clock=clock)
            journal.add_rates(*target.key, rates, clock() - start)
        clock_resolution(clock, ticks=1)  # a clock that stands still would never spend the budget
        planner = _planner(target, seconds, journal, drawn)
        speed_probe = None
        if clock is time.perf_counter:
            speed_probe = SpeedProbe(probed_cores(target.device, target.threads), usual=usual)
        bench = Bench(
            target.device, target.threads, rates=journal.rates[target.key], clock=clock, speed_probe=speed_probe
        )
        _measure_probes(target, seconds, journal, shown, planner, bench, clock)
        if target.device == "cpu":
            start = clock()
            rates = recount_fresh_pages(journal.rates[target.key], seconds=seconds * RATES_SHARE, clock=clock)
            journal.add_rates(*target.key, rates, clock() - start)


def _planner(target: Target, seconds: float, journal: Journal, drawn: int) -> Planner:
    # Another seed than an earlier run's: what was drawn then need not be drawn again.
    seed = zlib.crc32(f"{target.device} {target.threads} {journal.attempts(*target.key) + drawn}".encode())
    mostly = min(LONGEST_STEP * seconds, USUAL_LONGEST)
    rarely = max(min(LONGEST_SHARE * seconds, LONGEST), mostly)
    short = SHORT if target.device == "cpu" else 0.0
    return Planner(journal.rates[target.key], seed=seed, longest_step=mostly, rarely=rarely, short=short)


def _measure_probes(
    target: Target, seconds: float, journal: Journal, shown: Progress, planner: Planner, bench: Bench, clock: Clock
) -> None:
    key = target.key
    disturbed = 0
    while (spent := journal.seconds.get(key, 0.0)) < seconds * (1.0 if enough(journal, *key) else OVERTIME):
        probe = planner.next()
        shown.update(spent, probe.family)
        start, before = clock(), Load.now()
        observation = attempt(bench, probe, seconds=_step_seconds(probe, seconds), journal=journal)
        took = clock() - start
        if observation is not None and clock is time.perf_counter and Load.now().disturbed_since(before):
            disturbed += 1
            observation = _doubted(observation, disturbed, len(journal.observations))
        planner.learn(probe.family, observation, took)
        if observation is None:
            journal.seconds[key] = spent + took
        else:
            journal.add(observation, took)


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
