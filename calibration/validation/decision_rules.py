"""Rules that choose a place to run: placer's, those of simpler models, and fixed ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from placer.calibration.validation.record import Cell
from placer.calibration.validation.scenarios import Scenario
from placer.decision import best_count

#: Gives the name of the place that is chosen.
Rule = Callable[[Scenario], str]


def by_time(seconds: Callable[[Cell], float | None]) -> Rule:
    """The place with the least of these times; the conventional one where one of them is unknown."""

    def rule(scenario: Scenario) -> str:
        times = {device: seconds(cell) for device, cell in scenario.items()}
        known = {device: time for device, time in times.items() if time is not None}
        return min(known, key=known.__getitem__) if len(known) == len(times) else conventional(scenario)

    return rule


def by_baseline(name: str) -> Rule:
    """The place with the least time by this baseline."""
    return by_time(lambda cell: cell.baselines.get(name))


def always(device: str) -> Rule:
    """This device wherever there is a choice of it."""
    return lambda scenario: device if device in scenario else conventional(scenario)


def by_flops(limit: float) -> Rule:
    """The CPU below so many FLOPs per step, the accelerator from there on."""

    def rule(scenario: Scenario) -> str:
        flops = flops_of(scenario)
        return conventional(scenario) if flops is None or flops >= limit or "cpu" not in scenario else "cpu"

    return rule


def conventional(scenario: Scenario) -> str:
    """An accelerator if there is one, else what comes first: what ``choose`` does where it cannot price."""
    return next((name for name, cell in scenario.items() if cell.device != "cpu"), next(iter(scenario)))


def flops_of(scenario: Scenario) -> float | None:
    """FLOPs of a step."""
    return next((cell.flops for cell in scenario.values() if cell.flops is not None), None)


def tuned_threads(scenario: Scenario) -> str:
    """As ``choose`` does in a process that has all threads: the best count of each device, then the best device."""
    times = {name: cell.predicted for name, cell in scenario.items()}
    known = {name: time for name, time in times.items() if time is not None}
    if len(known) < len(times):
        return conventional(scenario)
    picked: dict[str, float] = {}
    for device in dict.fromkeys(cell.device for cell in scenario.values()):
        names = {cell.threads: name for name, cell in scenario.items() if cell.device == device}
        count = best_count({threads: known[name] for threads, name in names.items()}, max(names))
        picked[names[count]] = known[names[count]]
    return min(picked, key=picked.__getitem__)


def fixed_threads(device: str, pick: Callable[[Iterable[int]], int]) -> Rule:
    """This device, with the number of threads that ``pick`` takes: ``max`` or ``min``."""

    def rule(scenario: Scenario) -> str:
        names = {cell.threads: name for name, cell in scenario.items() if cell.device == device}
        return names[pick(names)] if names else conventional(scenario)

    return rule
