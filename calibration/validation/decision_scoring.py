"""How good decisions were: which device, and how many threads, as placer and simpler rules choose them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from placer.calibration.validation.grouping import group_by
from placer.calibration.validation.record import Cell, thread_count
from placer.decision import TIE, best_count

#: The cells of one network, batch and mode among which a choice is made, by the name of the place. A place is a device
#: (all cells with the same number of threads), or a device with a number of threads.
Scenario = Mapping[str, Cell]
#: Gives the name of the place that is chosen.
Rule = Callable[[Scenario], str]


@dataclass(frozen=True)
class DecisionScore:
    """How a rule chose devices over scenarios measured on two or more of them.

    ``wrong`` counts choices slower than the best device by more than the tie. Regret is time on the chosen device over
    time on the best one, minus 1: its geometric mean, the worst, and where the worst was.
    """

    rule: str
    scenarios: int
    wrong: int
    mean_regret: float
    worst_regret: float
    worst: str


def decisions(cells: Iterable[Cell]) -> list[DecisionScore]:
    """The decision table: placer first, then each baseline, then each device always. Empty below two devices."""
    asked = scenarios(cells)
    rules = _by_times(by_time(lambda cell: cell.predicted), asked)
    threshold = flop_threshold(asked)
    if threshold is not None:
        rules["best FLOP threshold"] = by_flops(threshold)
    for device in _devices(asked):
        rules[f"always {device}"] = always(device)
    return [decide_by(name, rule, asked) for name, rule in rules.items()] if asked else []


def thread_decisions(cells: Iterable[Cell]) -> list[DecisionScore]:
    """The table for (device, threads) places: what ``threads="tune"`` picks, then each baseline, then fixed rules.

    Empty where the CPU was not measured with two numbers of threads.
    """
    asked = thread_scenarios(cells)
    rules = _by_times(tuned_threads, asked)
    devices = _devices(asked)
    for device in devices:
        on = f"{device} with " if len(devices) > 1 else ""
        fewest = min(cell.threads for scenario in asked for cell in scenario.values() if cell.device == device)
        rules[f"always {on}all threads"] = always(device)
        rules[f"always {on}{thread_count(fewest)}"] = always(device, min)
    return [decide_by(name, rule, asked) for name, rule in rules.items()] if asked else []


def _by_times(placer: Rule, asked: Sequence[Scenario]) -> dict[str, Rule]:
    """placer's rule, and the choice of the place with the least time by each baseline."""
    names = dict.fromkeys(name for scenario in asked for cell in scenario.values() for name in cell.baselines)
    return {"placer": placer, **{name: by_time(partial(_baseline, name)) for name in names}}


def _baseline(name: str, cell: Cell) -> float | None:
    return cell.baselines.get(name)


def _devices(asked: Sequence[Scenario]) -> list[str]:
    return list(dict.fromkeys(cell.device for scenario in asked for cell in scenario.values()))


def decide_by(name: str, rule: Rule, asked: Sequence[Scenario]) -> DecisionScore:
    """Score one rule over scenarios (at least one)."""
    logs, wrong, worst, where = 0.0, 0, -1.0, ""
    for scenario in asked:
        best = min(scenario, key=lambda device: _measured(scenario[device]))
        chosen = rule(scenario)
        ratio = _measured(scenario[chosen]) / _measured(scenario[best])
        logs += math.log(ratio)
        wrong += ratio > 1.0 + TIE
        if ratio - 1.0 > worst:
            worst = ratio - 1.0
            cell = scenario[chosen]
            where = f"{cell.network}, batch {cell.batch}, {cell.mode}: {chosen} instead of {best}" if worst else ""
    return DecisionScore(name, len(asked), wrong, math.exp(logs / len(asked)) - 1.0, worst, where)


def flop_threshold(asked: Sequence[Scenario]) -> float | None:
    """FLOPs per step above which the accelerator is taken: the best such rule in hindsight, a generous baseline.

    None where a scenario has no FLOP count.
    """
    counts = [flops_of(scenario) for scenario in asked]
    known = sorted({count for count in counts if count is not None})
    if not known or None in counts:
        return None
    candidates = [0.0, *(count * (1 + 1e-9) for count in known)]
    return min(candidates, key=lambda limit: decide_by("", by_flops(limit), asked).mean_regret)


def _measured(cell: Cell) -> float:
    assert cell.measured is not None  # scenarios() keeps no other
    return cell.measured


def scenarios(cells: Iterable[Cell]) -> list[Scenario]:
    """The cells that answer "which device?": same network, batch, mode and threads, measured on two devices or more."""
    measured = [cell for cell in cells if cell.measured is not None]
    groups = group_by(measured, lambda cell: (cell.network, cell.batch, cell.mode, cell.threads)).values()
    found = [{cell.device: cell for cell in group} for group in groups]
    return [scenario for scenario in found if len(scenario) > 1]


def thread_scenarios(cells: Iterable[Cell]) -> list[Scenario]:
    """The cells that answer "with how many threads?": same network, batch and mode, measured with two counts or more.

    Places with more threads come first, as that is how a process starts.
    """
    measured = [cell for cell in cells if cell.measured is not None]
    found: list[Scenario] = []
    for group in group_by(measured, lambda cell: (cell.network, cell.batch, cell.mode)).values():
        if len({cell.threads for cell in group if cell.device == "cpu"}) > 1:
            several = len({cell.device for cell in group}) > 1
            ordered = sorted(group, key=lambda cell: -cell.threads)
            found.append({f"{cell.device}, " * several + thread_count(cell.threads): cell for cell in ordered})
    return found


def by_time(seconds: Callable[[Cell], float | None]) -> Rule:
    """The place with the least of these times; the conventional one where one of them is unknown."""

    def rule(scenario: Scenario) -> str:
        times = _known(scenario, seconds)
        return min(times, key=times.__getitem__) if times else conventional(scenario)

    return rule


def tuned_threads(scenario: Scenario) -> str:
    """As ``choose`` does in a process that has all threads: the best count of each device, then the best device."""
    times = _known(scenario, lambda cell: cell.predicted)
    if not times:
        return conventional(scenario)
    picked: dict[str, float] = {}
    for device in dict.fromkeys(cell.device for cell in scenario.values()):
        names = {cell.threads: name for name, cell in scenario.items() if cell.device == device}
        count = best_count({threads: times[name] for threads, name in names.items()}, max(names))
        picked[names[count]] = times[names[count]]
    return min(picked, key=picked.__getitem__)


def _known(scenario: Scenario, seconds: Callable[[Cell], float | None]) -> dict[str, float]:
    """The time of every place; empty where one of them is unknown."""
    times = {name: time for name, cell in scenario.items() if (time := seconds(cell)) is not None}
    return times if len(times) == len(scenario) else {}


def by_flops(limit: float) -> Rule:
    """The CPU below so many FLOPs per step, the accelerator from there on."""

    def rule(scenario: Scenario) -> str:
        flops = flops_of(scenario)
        return conventional(scenario) if flops is None or flops >= limit or "cpu" not in scenario else "cpu"

    return rule


def flops_of(scenario: Scenario) -> float | None:
    """FLOPs of a step."""
    return next((cell.flops for cell in scenario.values() if cell.flops is not None), None)


def always(device: str, pick: Callable[[Iterable[int]], int] = max) -> Rule:
    """This device wherever there is a choice of it, with the number of threads that ``pick`` takes."""

    def rule(scenario: Scenario) -> str:
        names = {cell.threads: name for name, cell in scenario.items() if cell.device == device}
        return names[pick(names)] if names else conventional(scenario)

    return rule


def conventional(scenario: Scenario) -> str:
    """An accelerator if there is one, else what comes first: what ``choose`` does where it cannot price."""
    return next((name for name, cell in scenario.items() if cell.device != "cpu"), next(iter(scenario)))
