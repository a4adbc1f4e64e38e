"""Measures one device at a number of CPU threads, until its share of the time is used."""

from __future__ import annotations

import math
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from placer import machine
from placer.calibration.benchmarks.fixed import PACE, probes
from placer.calibration.benchmarks.probe import Probe
from placer.calibration.build import enough
from placer.calibration.fitting import FEW_THREADS
from placer.calibration.measuring.bench import RECORDER, WAITING, Bench, attempt
from placer.calibration.measuring.journal import Journal, StepObservation
from placer.calibration.measuring.rates import measure_rates
from placer.calibration.measuring.recording import UNSEEN, KernelRecorder, try_recorder
from placer.calibration.measuring.timing import LARGE_BLOCK, Clock, clock_resolution
from placer.calibration.plan import Planner
from placer.calibration.progress import Progress
from placer.decision import running_with

#: Numbers of threads up to which nothing between one and all is measured.
NOTHING_BETWEEN = 4
#: Time that a number of threads gets, in times of what each device gets. What varies with what is learnt once: of two
#: threads on that number, of more on one, since what several take follows from it. A number between is measured for its
#: pace alone.
OTHER_THREADS, BETWEEN = 0.3, 0.1
#: Share of a device's time for the data-sheet rates.
RATES_SHARE = 0.08
#: Times its share that a device may take in one run, on a slow or contended machine, until there is anything to fit.
OVERTIME = 4.0
#: Shares of an accelerator's time after which the fixed networks are timed: at once, in the middle and near the end.
#: What they take together is the pace of the host; what the rounds differ by is how much it changes in a minute.
ROUNDS = (0.0, 0.45, 0.85)
#: Share of the time that a round takes at the most.
ROUND_SHARE = 0.13


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


def thread_counts(threads: int) -> tuple[int, ...]:
    """The numbers of CPU threads that are measured on a machine that runs ``threads``: 1, all, and one between.

    Where a loop gains from cores and starting it costs some time for each, the best number of threads may be any. Of
    three numbers, those a like factor apart leave the least to lose. On 16 cores (``thread_steps.json`` of the record
    nvidia-h200-16-core-second: 46 steps, with 1, 2, 4, 8 and 16 threads) the best of 1, 4 and 16 takes 2.9 % longer
    than the best of all on average; of 1, 8 and 16 5.1 %; of 1 and 16 12.2 %; of 1, 4, 8 and 16 1.3 %. A fourth number
    leaves each of them too few probes of a minute to be told from the others (``tests/simulated/many_cores.py``).
    """
    return tuple(sorted({1, threads, *([round(math.sqrt(threads))] if threads > NOTHING_BETWEEN else [])}))


def targets(devices: Sequence[str], quick: bool) -> list[Target]:
    """Every device at this process's number of threads; the CPU also at one and, on large machines, in between."""
    threads = torch.get_num_threads()
    wanted: list[Target] = []
    for device in devices:
        if device != "cpu":
            wanted.append(Target(device, threads, 1.0))
        elif threads <= FEW_THREADS:
            wanted.append(Target(device, threads, 1.0))
            wanted += [Target(device, 1, OTHER_THREADS)] if threads > 1 and not quick else []
        else:
            wanted += [Target(device, 1, 1.0), Target(device, threads, OTHER_THREADS)]
            others = [] if quick else thread_counts(threads)[1:-1]
            wanted += [Target(device, count, BETWEEN) for count in others]
    return shared_out(wanted)


def shared_out(some: Sequence[Target]) -> list[Target]:
    """The same targets, with shares that add up to 1."""
    total = sum(target.share for target in some)
    return [replace(target, share=target.share / total) for target in some]


def one_of_each(devices: Sequence[str], accelerators: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """``devices`` without those that are twins, in name and memory, of one before them.

    ``accelerators`` are those of a fingerprint. Twins have one fit, under the first one's name.
    """
    kinds = {str(a["device"]): (a.get("name"), a.get("memory_bytes")) for a in accelerators}
    first: dict[object, str] = {}
    for device in devices:
        first.setdefault(kinds.get(device, device), device)
    return tuple(first.values())


def start(target: Target, seconds: float, journal: Journal, shown: Progress, clock: Clock) -> KernelRecorder | None:
    """Measure the rates of a target that has ``seconds`` in all, and see what the event recorder shows of it.

    None on the CPU. Accelerators are started before anything else is measured: their recorder may only work if it is
    the first that a process uses. Raises whatever torch raises where an accelerator cannot be used.
    """
    with running_with(target.threads):
        if target.key not in journal.rates:
            shown.update(0.0, "rates")
            begun = clock()
            rates = measure_rates(target.device, seconds=seconds * RATES_SHARE, clock=clock)
            journal.add_rates(*target.key, rates, clock() - begun)
        if target.device == "cpu":
            return None
        recorder = try_recorder(target.device, clock)
        if recorder.sees:
            rates = journal.rates[target.key]
            # From a kernel's end to the start of the next one in the queue.
            gap = max(rates["dispatch_seconds"] - recorder.kernel_seconds, 0.0)
            journal.add_rates(*target.key, {**rates, "kernel_gap_seconds": gap}, 0.0)
        journal.use_timer(*target.key, RECORDER if recorder.sees else WAITING)
        return recorder


def measure(
    target: Target,
    seconds: float,
    journal: Journal,
    shown: Progress,
    clock: Clock,
    *,
    recorder: KernelRecorder | None = None,
) -> None:
    """Measure one target until ``seconds`` of it are used, what an earlier run spent included.

    ``recorder`` is what ``start`` returned, if it was called.
    """
    with running_with(target.threads):
        # Once freed, glibc maps no block of up to this size. Else the same op costs more before than after.
        torch.empty(LARGE_BLOCK, dtype=torch.uint8)
        shown.start(f"measuring {target.label}", seconds, done=journal.seconds.get(target.key, 0.0))
        if recorder is None:
            recorder = start(target, seconds, journal, shown, clock)
        clock_resolution(clock, ticks=1)  # a clock that stands still would never spend the budget
        # Another seed than an earlier run's: what was drawn then need not be drawn again.
        seed = zlib.crc32(f"{target.device} {target.threads} {journal.attempts(*target.key)}".encode())
        on_cpu = target.device == "cpu"
        planner = Planner(
            journal.rates[target.key],
            seed=seed,
            seconds=seconds,
            memory=None if on_cpu else machine.memory(target.device)[0],
            families=("network",) if on_cpu and target.threads > FEW_THREADS else None,
        )
        bench = Bench(
            target.device, target.threads, rates=journal.rates[target.key], clock=clock, kernels=recorder or UNSEEN
        )
        Probing(bench, planner, journal, shown, seconds).run()


@dataclass
class Probing:
    """Measures what ``planner`` draws on ``bench`` until ``seconds`` are used."""

    bench: Bench
    planner: Planner
    journal: Journal
    shown: Progress
    seconds: float

    def run(self) -> None:
        """Measure; raises BrokenDeviceError where an accelerator runs nothing any more."""
        before = self._spent
        while self._spent < self._allowed(before):
            if self.bench.device != "cpu":
                self._time_fixed_networks()
            probe = self.planner.next()
            self.shown.update(self._spent, probe.family)
            # Whole steps of a network are a sample, those of a block only show how noisy ops are.
            share = 1.0 if probe.family == "network" else 0.2
            observation, took = self._attempted(probe, share * min(0.06, 0.004 * self.seconds))
            self.planner.learn(probe.family, observation, took)

    def _time_fixed_networks(self) -> None:
        """Time a round of whole networks if one is due. Those that there is no time for are left out of it."""
        seen = Counter(step.name for step in self.journal.of(*self._key) if step.family == PACE)
        done = max(seen.values(), default=0)
        if done >= len(ROUNDS) or self._spent < ROUNDS[done] * self.seconds:
            return
        left = ROUND_SHARE * self.seconds
        for probe in probes():
            if left <= 0.0:
                return
            left -= self._attempted(probe, whole=True)[1]

    def _attempted(
        self, probe: Probe, seconds: float = 0.0, *, whole: bool = False
    ) -> tuple[StepObservation | None, float]:
        """(what a probe showed, if anything, and the seconds that it took), both in the journal."""
        begun = self.bench.clock()
        observation = attempt(self.bench, probe, seconds=seconds, journal=self.journal, whole=whole)
        took = self.bench.clock() - begun
        if observation is None:
            self.journal.seconds[self._key] = self._spent + took
        else:
            self.journal.add(observation, took)
        return observation, took

    @property
    def _key(self) -> tuple[str, int]:
        return self.bench.device, self.bench.threads

    @property
    def _spent(self) -> float:
        return self.journal.seconds.get(self._key, 0.0)

    def _allowed(self, before: float) -> float:
        """Seconds of this run and of those ``before`` it."""
        return self.seconds if enough(self.journal, *self._key) else before + OVERTIME * self.seconds
