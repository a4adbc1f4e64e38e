"""How good predictions and decisions were: pure functions on the cells of a record."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from placer.calibration.measuring.timing import percentile
from placer.calibration.validation.record import Cell, thread_count
from placer.decision import TIE, best_count

T = TypeVar("T")
Label = TypeVar("Label", bound=Hashable)
#: The number of parameters below which a published rule takes the CPU.
FEW_PARAMETERS = 100_000
#: The cells of one network, batch and mode among which a choice is made, by the name of the place. A place is a device
#: (all cells with the same number of threads), or a device with a number of threads.
Scenario = Mapping[str, Cell]


def group_by(items: Iterable[T], label: Callable[[T], Label]) -> dict[Label, list[T]]:
    """Items by label, labels in the order they first appear."""
    groups: dict[Label, list[T]] = defaultdict(list)
    for item in items:
        groups[label(item)].append(item)
    return dict(groups)


@dataclass(frozen=True)
class Score:
    """Predictions beside measurements over a set of cells.

    Errors are ``|predicted / measured - 1|``. ``bias`` is the mean of ``log(predicted / measured)``: below 0,
    predictions are too fast. ``inside`` is the share of measurements within the predicted 90 % interval.
    ``unpredicted`` and ``failed`` count cells that have no prediction, or no measurement; they are in no other number.
    """

    cells: int
    unpredicted: int
    failed: int
    median_error: float
    p90_error: float
    within_10: float
    within_25: float
    beyond_2x: float
    inside: float
    bias: float


def score(cells: Iterable[Cell]) -> Score | None:
    """The score of these cells, None without any; its shares are NaN when none is both predicted and measured."""
    everything = list(cells)
    if not everything:
        return None
    ratios, inside, failed = [], [], 0
    for cell in everything:
        if cell.measured is None:
            failed += 1
            continue
        if cell.predicted is not None:
            ratios.append(cell.predicted / cell.measured)
        if cell.low is not None and cell.high is not None:
            inside.append(cell.low <= cell.measured <= cell.high)
    errors = sorted(abs(ratio - 1.0) for ratio in ratios)
    return Score(
        cells=len(ratios),
        unpredicted=len(everything) - failed - len(ratios),
        failed=failed,
        median_error=percentile(errors, 0.5) if errors else math.nan,
        p90_error=percentile(errors, 0.9) if errors else math.nan,
        within_10=_mean(error <= 0.10 for error in errors),
        within_25=_mean(error <= 0.25 for error in errors),
        beyond_2x=_mean(not 0.5 <= ratio <= 2.0 for ratio in ratios),
        inside=_mean(inside),
        bias=_mean(math.log(ratio) for ratio in ratios),
    )


def _mean(values: Iterable[float]) -> float:
    listed = list(values)
    return sum(listed) / len(listed) if listed else math.nan


def baseline_scores(cells: Iterable[Cell]) -> dict[str, Score]:
    """What each baseline scores as a prediction, by its name in ``Cell.baselines``; a baseline has no interval."""
    predicted: dict[str, list[Cell]] = defaultdict(list)
    for cell in cells:
        for name, seconds in cell.baselines.items():
            if cell.measured is not None and seconds > 0.0:
                predicted[name].append(replace(cell, predicted=seconds, low=None, high=None))
    return {name: found for name, some in predicted.items() if (found := score(some)) is not None}


def as_the_smallest_batch(cells: Iterable[Cell]) -> Score | None:
    """What "a larger batch takes as long as the same network's smallest" scores, where that was measured.

    It needs a measurement, and no model; None where no network was measured with two batches.
    """
    return score(
        replace(cell, predicted=smallest.measured, low=None, high=None) for smallest, cell in larger_batches(cells)
    )


def larger_batches(cells: Iterable[Cell]) -> list[tuple[Cell, Cell]]:
    """Each measured cell of a larger batch, beside that of the smallest batch of its network, mode and place.

    The smallest comes first.
    """
    measured = [cell for cell in cells if cell.measured is not None]
    found = []
    for group in group_by(measured, lambda cell: (cell.network, cell.mode, cell.device, cell.threads)).values():
        smallest = min(group, key=lambda cell: cell.batch)
        larger = sorted((cell for cell in group if cell.batch > smallest.batch), key=lambda cell: cell.batch)
        found += [(smallest, cell) for cell in larger]
    return found


def repeatability_score(cells: Iterable[Cell]) -> Score | None:
    """The measurement as a prediction of itself: how far apart its first and last visit are, or its two halves."""
    return score(
        replace(cell, predicted=cell.repeatability, measured=1.0, low=None, high=None)
        for cell in cells
        if cell.repeatability is not None
    )


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
    asked = scenarios(cells)
    choices = _by_times(asked, [_fastest(scenario, _predicted(scenario)) for scenario in asked])
    for device in _devices(asked):
        choices[f"always {device}"] = [_always(scenario, device, max) for scenario in asked]
    if all(_parameters(scenario) is not None for scenario in asked):
        choices[f"cpu below {FEW_PARAMETERS:,} parameters"] = [_by_parameters(scenario) for scenario in asked]
    return [_judged(rule, chosen, asked) for rule, chosen in choices.items()] if asked else []


def thread_decisions(cells: Iterable[Cell]) -> list[DecisionScore]:
    """The table for (device, threads) places: what ``threads="tune"`` picks, then each baseline, then fixed rules.

    Empty where the CPU was not measured with two numbers of threads.
    """
    asked = thread_scenarios(cells)
    choices = _by_times(asked, [_tuned(scenario) for scenario in asked])
    devices = _devices(asked)
    for device in devices:
        on = f"{device} with " if len(devices) > 1 else ""
        fewest = min(cell.threads for scenario in asked for cell in scenario.values() if cell.device == device)
        choices[f"always {on}all threads"] = [_always(scenario, device, max) for scenario in asked]
        choices[f"always {on}{thread_count(fewest)}"] = [_always(scenario, device, min) for scenario in asked]
    return [_judged(rule, chosen, asked) for rule, chosen in choices.items()] if asked else []


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


def _devices(asked: Sequence[Scenario]) -> list[str]:
    return list(dict.fromkeys(cell.device for scenario in asked for cell in scenario.values()))


def _by_times(asked: Sequence[Scenario], placer: list[str]) -> dict[str, list[str]]:
    """The chosen place of each scenario by rule: placer's, and the fastest by each baseline."""
    choices = {"placer": placer}
    for name in dict.fromkeys(name for scenario in asked for cell in scenario.values() for name in cell.baselines):
        choices[name] = [
            _fastest(scenario, {place: cell.baselines.get(name) for place, cell in scenario.items()})
            for scenario in asked
        ]
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
