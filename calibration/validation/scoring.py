"""How good predictions and decisions were: pure functions on validation cells."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from placer.calibration.measuring.timing import percentile
from placer.calibration.validation.record import Cell
from placer.decision import best_count

#: Two devices whose measured times differ by less than this share are a tie: either choice is right.
TIE = 0.10


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


def error_of(cell: Cell) -> float | None:
    """``|predicted / measured - 1|``, None where either is missing."""
    if cell.predicted is None or cell.measured is None:
        return None
    return abs(cell.predicted / cell.measured - 1.0)


def score(cells: Iterable[Cell]) -> Score | None:
    """The score of these cells, None without any; its shares are NaN when none is both predicted and measured."""
    everything = list(cells)
    if not everything:
        return None
    pairs = [(c.predicted, c.measured) for c in everything if c.predicted is not None and c.measured is not None]
    errors = sorted(abs(predicted / measured - 1.0) for predicted, measured in pairs)
    ratios = [predicted / measured for predicted, measured in pairs]
    intervals = [
        c.low <= c.measured <= c.high
        for c in everything
        if c.measured is not None and c.low is not None and c.high is not None
    ]
    return Score(
        cells=len(pairs),
        unpredicted=sum(c.predicted is None and c.measured is not None for c in everything),
        failed=sum(c.measured is None for c in everything),
        median_error=percentile(errors, 0.5) if errors else math.nan,
        p90_error=percentile(errors, 0.9) if errors else math.nan,
        within_10=_share(error <= 0.10 for error in errors),
        within_25=_share(error <= 0.25 for error in errors),
        beyond_2x=_share(not 0.5 <= ratio <= 2.0 for ratio in ratios),
        inside=_share(intervals),
        bias=_mean(math.log(ratio) for ratio in ratios),
    )


def baseline_scores(cells: Iterable[Cell]) -> dict[str, Score]:
    """What each baseline scores as a prediction, by its name in ``Cell.baselines``; a baseline has no interval."""
    measured = [cell for cell in cells if cell.measured is not None]
    names = dict.fromkeys(name for cell in measured for name in cell.baselines)
    scores = {}
    for name in names:
        having = [
            replace(cell, predicted=cell.baselines[name], low=None, high=None)
            for cell in measured
            if cell.baselines.get(name, 0.0) > 0.0
        ]
        found = score(having)
        if found is not None:
            scores[name] = found
    return scores


def repeatability_score(cells: Iterable[Cell]) -> Score | None:
    """The measurement as a prediction of itself: how far one half of its rounds is from the other."""
    halves = [
        replace(cell, predicted=cell.repeatability, measured=1.0, low=None, high=None)
        for cell in cells
        if cell.repeatability is not None
    ]
    return score(halves)


def anyhow_score(cells: Iterable[Cell]) -> Score | None:
    """The score against what was measured with the steps at another pace among the others."""
    return score(
        replace(cell, measured=statistics.median(cell.anyhow), low=None, high=None) for cell in cells if cell.anyhow
    )


def group_by(cells: Iterable[Cell], label: Callable[[Cell], str]) -> dict[str, list[Cell]]:
    """Cells by label, labels in the order they first appear."""
    groups: dict[str, list[Cell]] = defaultdict(list)
    for cell in cells:
        groups[label(cell)].append(cell)
    return dict(groups)


def batch_band(cell: Cell) -> str:
    """The batch size, in bands of a factor of about ten."""
    for top, name in ((1, "1"), (15, "2-15"), (127, "16-127"), (1023, "128-1,023")):
        if cell.batch <= top:
            return name
    return "1,024 and more"


def time_band(cell: Cell) -> str:
    """The measured step time, in bands of a factor of ten."""
    if cell.measured is None:
        return "not measured"
    for top, name in ((1e-3, "below 1 ms"), (1e-2, "1-10 ms"), (1e-1, "10-100 ms"), (1.0, "0.1-1 s")):
        if cell.measured < top:
            return name
    return "1 s and more"


@dataclass(frozen=True)
class DecisionScore:
    """How a rule chose devices over scenarios measured on two or more of them.

    ``wrong`` counts choices slower than the best device by more than the tie. Regret is time on the chosen device over
    time on the best one, minus 1: its geometric mean, the worst, and where the worst was. ``confusion`` counts (best
    device, chosen device).
    """

    rule: str
    scenarios: int
    wrong: int
    mean_regret: float
    worst_regret: float
    worst: str
    confusion: Mapping[tuple[str, str], int]


#: One scenario: the cells of one network, batch and mode among which a choice is made, by the name of the place. A
#: place is a device (all cells with the same number of threads), or a device with a number of threads.
Scenario = Mapping[str, Cell]
Rule = Callable[[Scenario], str]


def scenarios(cells: Iterable[Cell]) -> list[Scenario]:
    """The cells that answer "which device?": same network, batch, mode and threads, measured on two devices or more."""
    groups: dict[tuple[str, int, str, int], dict[str, Cell]] = defaultdict(dict)
    for cell in cells:
        if cell.measured is not None:
            groups[cell.network, cell.batch, cell.mode, cell.threads][cell.device] = cell
    return [group for group in groups.values() if len(group) > 1]


def decisions(cells: Iterable[Cell], tie: float = TIE) -> list[DecisionScore]:
    """The decision table: placer first, then each baseline, then each device always. Empty below two devices."""
    asked = scenarios(cells)
    if not asked:
        return []
    devices = list(dict.fromkeys(device for scenario in asked for device in scenario))
    rules: dict[str, Rule] = {"placer": _by_time(lambda cell: cell.predicted)}
    for name in dict.fromkeys(name for scenario in asked for cell in scenario.values() for name in cell.baselines):
        rules[name] = _by_baseline(name)
    threshold = flop_threshold(asked)
    if threshold is not None:
        rules["best FLOP threshold"] = _by_flops(threshold)
    for device in devices:
        rules[f"always {device}"] = _always(device)
    return [decide_by(name, rule, asked, tie) for name, rule in rules.items()]


def thread_scenarios(cells: Iterable[Cell]) -> list[Scenario]:
    """The cells that answer "with how many threads?": same network, batch and mode, measured with two counts or more.

    Places with more threads come first, as that is how a process starts.
    """
    groups: dict[tuple[str, int, str], list[Cell]] = defaultdict(list)
    for cell in cells:
        if cell.measured is not None:
            groups[cell.network, cell.batch, cell.mode].append(cell)
    found: list[Scenario] = []
    for group in groups.values():
        several = len({cell.device for cell in group}) > 1
        if len({cell.threads for cell in group if cell.device == "cpu"}) > 1:
            ordered = sorted(group, key=lambda cell: -cell.threads)
            found.append({_place_name(cell, several): cell for cell in ordered})
    return found


def thread_decisions(cells: Iterable[Cell], tie: float = TIE) -> list[DecisionScore]:
    """The table for (device, threads) places: what ``threads="tune"`` picks, then each baseline, then fixed rules.

    Empty where the CPU was not measured with two numbers of threads.
    """
    asked = thread_scenarios(cells)
    if not asked:
        return []
    rules: dict[str, Rule] = {"placer": _tuned}
    for name in dict.fromkeys(name for scenario in asked for cell in scenario.values() for name in cell.baselines):
        rules[name] = _by_baseline(name)
    devices = list(dict.fromkeys(cell.device for scenario in asked for cell in scenario.values()))
    for device in devices:
        on = f"{device} with " if len(devices) > 1 else ""
        fewest = min(cell.threads for scenario in asked for cell in scenario.values() if cell.device == device)
        rules[f"always {on}all threads"] = _fixed_threads(device, max)
        rules[f"always {on}{_count(fewest)}"] = _fixed_threads(device, min)
    return [decide_by(name, rule, asked, tie) for name, rule in rules.items()]


def _place_name(cell: Cell, several_devices: bool) -> str:
    return f"{cell.device}, {_count(cell.threads)}" if several_devices else _count(cell.threads)


def _count(threads: int) -> str:
    return f"{threads} thread" if threads == 1 else f"{threads} threads"


def _tuned(scenario: Scenario) -> str:
    """As ``choose`` does in a process that has all threads: the best count of each device, then the best device."""
    times = {name: cell.predicted for name, cell in scenario.items()}
    known = {name: time for name, time in times.items() if time is not None}
    if len(known) < len(times):
        return _usual(scenario)
    picked: dict[str, float] = {}
    for device in dict.fromkeys(cell.device for cell in scenario.values()):
        names = {cell.threads: name for name, cell in scenario.items() if cell.device == device}
        count = best_count({threads: known[name] for threads, name in names.items()}, max(names))
        picked[names[count]] = known[names[count]]
    return min(picked, key=picked.__getitem__)


def _fixed_threads(device: str, pick: Callable[[Iterable[int]], int]) -> Rule:
    def rule(scenario: Scenario) -> str:
        names = {cell.threads: name for name, cell in scenario.items() if cell.device == device}
        return names[pick(names)] if names else _usual(scenario)

    return rule


def decide_by(name: str, rule: Rule, asked: Sequence[Scenario], tie: float = TIE) -> DecisionScore:
    """Score one rule over scenarios (at least one)."""
    logs, wrong, worst, where = 0.0, 0, -1.0, ""
    confusion: dict[tuple[str, str], int] = defaultdict(int)
    for scenario in asked:
        best = min(scenario, key=lambda device: _measured(scenario[device]))
        chosen = rule(scenario)
        ratio = _measured(scenario[chosen]) / _measured(scenario[best])
        confusion[best, chosen] += 1
        logs += math.log(ratio)
        wrong += ratio > 1.0 + tie
        if ratio - 1.0 > worst:
            worst = ratio - 1.0
            cell = scenario[chosen]
            where = f"{cell.network}, batch {cell.batch}, {cell.mode}: {chosen} instead of {best}" if worst else ""
    return DecisionScore(name, len(asked), wrong, math.exp(logs / len(asked)) - 1.0, worst, where, dict(confusion))


def flop_threshold(asked: Sequence[Scenario]) -> float | None:
    """FLOPs per step above which the accelerator is taken: the best such rule in hindsight, a generous baseline.

    None where a scenario has no FLOP count.
    """
    counts = [_flops(scenario) for scenario in asked]
    known = sorted({count for count in counts if count is not None})
    if not known or None in counts:
        return None
    candidates = [0.0, *(count * (1 + 1e-9) for count in known)]
    return min(candidates, key=lambda limit: decide_by("", _by_flops(limit), asked).mean_regret)


def _by_time(seconds: Callable[[Cell], float | None]) -> Rule:
    def rule(scenario: Scenario) -> str:
        times = {device: seconds(cell) for device, cell in scenario.items()}
        known = {device: time for device, time in times.items() if time is not None}
        # As choose() does where it cannot price: the conventional rule.
        return min(known, key=known.__getitem__) if len(known) == len(times) else _usual(scenario)

    return rule


def _by_baseline(name: str) -> Rule:
    return _by_time(lambda cell: cell.baselines.get(name))


def _always(device: str) -> Rule:
    return lambda scenario: device if device in scenario else _usual(scenario)


def _by_flops(limit: float) -> Rule:
    def rule(scenario: Scenario) -> str:
        flops = _flops(scenario)
        return _usual(scenario) if flops is None or flops >= limit or "cpu" not in scenario else "cpu"

    return rule


def _usual(scenario: Scenario) -> str:
    """An accelerator if there is one, else what comes first."""
    return next((name for name, cell in scenario.items() if cell.device != "cpu"), next(iter(scenario)))


def _flops(scenario: Scenario) -> float | None:
    return next((cell.flops for cell in scenario.values() if cell.flops is not None), None)


def _measured(cell: Cell) -> float:
    assert cell.measured is not None  # scenarios() keeps no other
    return cell.measured


def _share(flags: Iterable[bool]) -> float:
    return _mean(float(flag) for flag in flags)


def _mean(values: Iterable[float]) -> float:
    listed = list(values)
    return sum(listed) / len(listed) if listed else math.nan
