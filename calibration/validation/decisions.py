"""How well placer and simpler rules choose among the places that a network was measured in."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

from placer.calibration.validation.compare import group_by
from placer.calibration.validation.record import Cell, thread_count
from placer.decision import TIE, best_count

#: The number of parameters below which a published rule takes the CPU.
FEW_PARAMETERS = 100_000
#: The cells of one network, batch and mode among which a choice is made, by the name of the place. A place is a device
#: (all cells with the same number of threads), or a device with a number of threads.
Scenario = Mapping[str, Cell]


@dataclass(frozen=True)
class DecisionScore:
    """How a rule chose places over scenarios measured in two or more of them.

    ``wrong`` counts choices slower than the best place by more than the tie. Regret is time in the chosen place over
    time in the best one, minus 1: its geometric mean, the worst, and where the worst was.
    """

    rule: str
    scenarios: int
    wrong: int
    mean_regret: float
    worst_regret: float
    worst: str


def decisions(cells: Iterable[Cell]) -> list[DecisionScore]:
    """The decision table: placer first, then each baseline, then each device always, then the rule by parameters.

    Empty below two devices. The last is left out where a network's number of parameters is not known.
    """
    measured = [cell for cell in cells if cell.measured is not None]
    groups = group_by(measured, attrgetter("network", "batch", "mode", "threads")).values()
    asked: list[Scenario] = []
    for group in groups:
        scenario = {cell.device: cell for cell in group}
        if len(scenario) > 1:
            asked.append(scenario)
    choices = {"placer": [_fastest(scenario, _predicted(scenario)) for scenario in asked], **_by_baselines(asked)}
    for device in _devices(asked):
        choices[f"always {device}"] = [_always(scenario, device, max) for scenario in asked]
    if all(_parameters(scenario) is not None for scenario in asked):
        choices[f"cpu below {FEW_PARAMETERS:,} parameters"] = [_by_parameters(scenario) for scenario in asked]
    return [_judged(rule, chosen, asked) for rule, chosen in choices.items()] if asked else []


def thread_decisions(cells: Iterable[Cell]) -> list[DecisionScore]:
    """The table for (device, threads) places: what ``threads="tune"`` picks, then each baseline, then fixed rules.

    Empty where the CPU was not measured with two numbers of threads.
    """
    measured = [cell for cell in cells if cell.measured is not None]
    asked: list[Scenario] = []
    for group in group_by(measured, attrgetter("network", "batch", "mode")).values():
        if len({cell.threads for cell in group if cell.device == "cpu"}) > 1:
            several = len({cell.device for cell in group}) > 1
            ordered = sorted(
                group, key=lambda cell: -cell.threads
            )  # more threads first, as that is how a process starts
            asked.append({f"{cell.device}, " * several + thread_count(cell.threads): cell for cell in ordered})
    choices = {"placer": [_tuned(scenario) for scenario in asked], **_by_baselines(asked)}
    devices = _devices(asked)
    for device in devices:
        on = f"{device} with " if len(devices) > 1 else ""
        fewest = min(cell.threads for scenario in asked for cell in scenario.values() if cell.device == device)
        choices[f"always {on}all threads"] = [_always(scenario, device, max) for scenario in asked]
        choices[f"always {on}{thread_count(fewest)}"] = [_always(scenario, device, min) for scenario in asked]
    return [_judged(rule, chosen, asked) for rule, chosen in choices.items()] if asked else []


def _devices(asked: Sequence[Scenario]) -> list[str]:
    return list(dict.fromkeys(cell.device for scenario in asked for cell in scenario.values()))


def _baseline(scenario: Scenario, name: str) -> dict[str, float | None]:
    return {place: cell.baselines.get(name) for place, cell in scenario.items()}


def _by_baselines(asked: Sequence[Scenario]) -> dict[str, list[str]]:
    """The place of each scenario that each baseline finds the fastest."""
    names = dict.fromkeys(name for scenario in asked for cell in scenario.values() for name in cell.baselines)
    choices: dict[str, list[str]] = {}
    for name in names:
        choices[name] = [_fastest(scenario, _baseline(scenario, name)) for scenario in asked]
    return choices


def _predicted(scenario: Scenario) -> dict[str, float | None]:
    return {place: cell.predicted for place, cell in scenario.items()}


def _fastest(scenario: Scenario, seconds: Mapping[str, float | None]) -> str:
    """The place with the least time; the conventional one where a time is unknown."""
    times = {place: time for place, time in seconds.items() if time is not None}
    return min(times, key=times.__getitem__) if len(times) == len(scenario) else _conventional(scenario)


def _tuned(scenario: Scenario) -> str:
    """As ``choose`` does in a process that has all threads: the best count of each device, then the best device."""
    times = {place: time for place, time in _predicted(scenario).items() if time is not None}
    if len(times) < len(scenario):
        return _conventional(scenario)
    picked: dict[str, float] = {}
    for device in _devices([scenario]):
        places = {cell.threads: place for place, cell in scenario.items() if cell.device == device}
        count = best_count({threads: times[place] for threads, place in places.items()}, max(places))
        picked[places[count]] = times[places[count]]
    return min(picked, key=picked.__getitem__)


def _always(scenario: Scenario, device: str, pick: Callable[[Iterable[int]], int]) -> str:
    """This device wherever there is a choice of it, with the number of threads that ``pick`` takes."""
    places = {cell.threads: place for place, cell in scenario.items() if cell.device == device}
    return places[pick(places)] if places else _conventional(scenario)


def _parameters(scenario: Scenario) -> int | None:
    return next(iter(scenario.values())).parameters


def _by_parameters(scenario: Scenario) -> str:
    """The CPU for a network of few parameters, else an accelerator, whatever the batch is."""
    few = (_parameters(scenario) or 0) < FEW_PARAMETERS
    return _always(scenario, "cpu", max) if few else _conventional(scenario)


def _conventional(scenario: Scenario) -> str:
    """An accelerator if there is one, else what comes first: what ``choose`` does where it cannot price."""
    return next((place for place, cell in scenario.items() if cell.device != "cpu"), next(iter(scenario)))


def _judged(rule: str, chosen: Sequence[str], asked: Sequence[Scenario]) -> DecisionScore:
    """The score of the places that a rule chose, one for each scenario (at least one)."""
    logs, wrong, worst, where = 0.0, 0, -1.0, ""
    for place, scenario in zip(chosen, asked, strict=True):
        measured = {name: cell.measured for name, cell in scenario.items() if cell.measured is not None}
        best = min(measured, key=measured.__getitem__)
        ratio = measured[place] / measured[best]
        logs += math.log(ratio)
        wrong += ratio > 1.0 + TIE
        if ratio - 1.0 > worst:
            worst = ratio - 1.0
            cell = scenario[place]
            where = f"{cell.network}, batch {cell.batch}, {cell.mode}: {place} instead of {best}" if worst else ""
    return DecisionScore(rule, len(asked), wrong, math.exp(logs / len(asked)) - 1.0, worst, where)
