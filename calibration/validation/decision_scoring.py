"""How good decisions were: which device, and how many threads, as placer and simpler rules choose them."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from placer.calibration.validation.decision_rules import (
    Rule,
    always,
    by_baseline,
    by_flops,
    by_time,
    fixed_threads,
    flops_of,
    tuned_threads,
)
from placer.calibration.validation.record import Cell, thread_count
from placer.calibration.validation.scenarios import Scenario, scenarios, thread_scenarios
from placer.decision import TIE


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


def decisions(cells: Iterable[Cell], tie: float = TIE) -> list[DecisionScore]:
    """The decision table: placer first, then each baseline, then each device always. Empty below two devices."""
    asked = scenarios(cells)
    if not asked:
        return []
    devices = list(dict.fromkeys(device for scenario in asked for device in scenario))
    rules: dict[str, Rule] = {"placer": by_time(lambda cell: cell.predicted)}
    for name in dict.fromkeys(name for scenario in asked for cell in scenario.values() for name in cell.baselines):
        rules[name] = by_baseline(name)
    threshold = flop_threshold(asked)
    if threshold is not None:
        rules["best FLOP threshold"] = by_flops(threshold)
    for device in devices:
        rules[f"always {device}"] = always(device)
    return [decide_by(name, rule, asked, tie) for name, rule in rules.items()]


def thread_decisions(cells: Iterable[Cell], tie: float = TIE) -> list[DecisionScore]:
    """The table for (device, threads) places: what ``threads="tune"`` picks, then each baseline, then fixed rules.

    Empty where the CPU was not measured with two numbers of threads.
    """
    asked = thread_scenarios(cells)
    if not asked:
        return []
    rules: dict[str, Rule] = {"placer": tuned_threads}
    for name in dict.fromkeys(name for scenario in asked for cell in scenario.values() for name in cell.baselines):
        rules[name] = by_baseline(name)
    devices = list(dict.fromkeys(cell.device for scenario in asked for cell in scenario.values()))
    for device in devices:
        on = f"{device} with " if len(devices) > 1 else ""
        fewest = min(cell.threads for scenario in asked for cell in scenario.values() if cell.device == device)
        rules[f"always {on}all threads"] = fixed_threads(device, max)
        rules[f"always {on}{thread_count(fewest)}"] = fixed_threads(device, min)
    return [decide_by(name, rule, asked, tie) for name, rule in rules.items()]


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
    counts = [flops_of(scenario) for scenario in asked]
    known = sorted({count for count in counts if count is not None})
    if not known or None in counts:
        return None
    candidates = [0.0, *(count * (1 + 1e-9) for count in known)]
    return min(candidates, key=lambda limit: decide_by("", by_flops(limit), asked).mean_regret)


def _measured(cell: Cell) -> float:
    assert cell.measured is not None  # scenarios() keeps no other
    return cell.measured
