"""What recording costs on this machine: steps of tiny layers, with the event recorder and without."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable

import torch
from torch import nn

from placer.calibration.measuring.recording import record
from placer.calibration.measuring.speed_probe import SpeedProbe
from placer.calibration.measuring.step_timing import RecorderCost
from placer.calibration.measuring.stopwatch import Stopwatch

#: Layers of the chains, and the rounds in which each is timed.
CHAINS, COST_ROUNDS = (2, 8, 24), 4
#: Seconds after which no round is begun: on a slow machine fewer rounds do.
MOST_SECONDS = 2.0
#: Undisturbed steps on both sides of the recorded ones, and recorded steps.
UNDISTURBED, RECORDED = 10, 6
#: Ops of the chains that tell launches from events: fewer than a queue holds.
LAUNCHES = 64
#: Seconds that one event or launch costs at most, on any machine measured so far.
MOST_PER_EVENT = 5e-6


def recorder_cost(
    device: str, *, synchronize: Callable[[], None] | None = None, clock: Callable[[], float] = time.perf_counter,
    speed_probe: SpeedProbe | None = None,
) -> RecorderCost:  # fmt: skip
    """What recording adds to a step on ``device``: chains of tiny layers are trained with and without it, in turns.

    An error here is taken off the ops and charged to what lies between them, so one disturbed moment must not decide:
    the cost per event is the median slope over all pairs of chains of all rounds (Sen, 1968).
    """
    chains = [Stopwatch(_chain(depth, device), synchronize, clock, speed_probe) for depth in CHAINS]
    for chain in chains:
        for _ in range(3):
            chain.step()
    # The first session of a process sets the recorder up. One without a kernel may end the recording of kernels for
    # good (lightseekorg/tokenspeed#1348 with CUDA 13.0, #1287 with ROCm 7.2).
    record(chains[0].seconds, 1, accelerated=synchronize is not None)
    per_launch = 0.0 if synchronize is None else _per_launch(device, synchronize, clock, speed_probe)
    points: list[tuple[float, float]] = []
    slopes: list[float] = []
    end = clock() + MOST_SECONDS
    for number in range(COST_ROUNDS):
        if number and clock() >= end:
            break
        found = [(events, added - per_launch * launches) for events, launches, added in map(_added, chains)]
        points += found
        slopes += [(b - a) / (n - m) for (m, a), (n, b) in itertools.combinations(found, 2) if n != m]
    per_event = min(max(statistics.median(slopes), 0.0), MOST_PER_EVENT) if slopes else 0.0
    per_step = max(statistics.median(added - n * per_event for n, added in points), 0.0)
    return RecorderCost(per_step, per_event, per_launch)


def _per_launch(
    device: str, synchronize: Callable[[], None], clock: Callable[[], float], speed_probe: SpeedProbe | None
) -> float:
    """What recording adds to a launch: a chain of ops that launch a kernel, beside one of as many views."""
    tiny = torch.ones(8, device=device)

    def kernels() -> None:
        for _ in range(LAUNCHES):
            tiny.neg_()

    def views() -> None:
        tiny.neg_()  # no session is without a kernel
        for _ in range(LAUNCHES - 1):
            tiny.view(8)

    launching, viewing = (Stopwatch(step, synchronize, clock, speed_probe) for step in (kernels, views))
    kernels()
    differences = [_added(launching)[2] - _added(viewing)[2] for _ in range(COST_ROUNDS)]
    return min(max(statistics.median(differences) / (LAUNCHES - 1), 0.0), MOST_PER_EVENT)


def _chain(depth: int, device: str) -> Callable[[], None]:
    chain = nn.Sequential(*(layer for _ in range(depth) for layer in (nn.Linear(16, 16), nn.Tanh()))).to(device)
    rows = torch.randn(16, 16, device=device)

    def step() -> None:
        chain.zero_grad()
        chain(rows).sum().backward()

    return step


def _added(stopwatch: Stopwatch) -> tuple[float, float, float]:
    """(events of a step, launches, seconds that recording both adds)."""
    around, recorded = stopwatch.in_turns(UNDISTURBED, RECORDED, UNDISTURBED)
    events = statistics.median(len(run.events) for run, _ in recorded)
    launches = statistics.median(run.launches for run, _ in recorded)
    plain = statistics.median(run.seconds for run, _ in around)
    return events, launches, statistics.median(run.seconds for run, _ in recorded) - plain
