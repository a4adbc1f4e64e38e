"""Predictions in, one choice out: which device is best, how sure that is, and after how many steps it pays."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from placer.decision.objective import STEP, TIME, Objective, Unit
from placer.decision.reason import reason, what_tips_it
from placer.decision.threads import ThreadOption
from placer.decision.timed import EQUAL, TIE, Timed, counted_seconds, is_cpu

#: Below this probability that the chosen device is the faster one, too, devices are about the same.
SURE = 0.7
#: The verdict on a tie, in words.
ABOUT_THE_SAME = "about the same"
#: A 90 % interval of a normal distribution reaches this many standard deviations to either side.
Z_90 = 1.6448536269514722


@dataclass(frozen=True)
class Decision:
    """The chosen device.

    ``threads`` is the number of CPU threads the choice was made for. ``confidence`` is the probability that the chosen
    device is faster than the best other one that fits (1.0 when there is no other, None when nothing was predicted).
    ``break_even_steps`` is how many steps repay the accelerator's one-time cost, None when none do or none need to.
    ``speedup`` is the time on the best other device divided by the time on the chosen one. ``thread_options`` are the
    numbers of CPU threads that were compared, ascending; empty unless that was asked for. Where the ``objective`` is
    cost or energy, money or energy takes the place of time in all of these.

    A device is chosen in any case; ``tie`` says that it hardly matters.
    """

    device: str
    threads: int
    confidence: float | None
    reason: str
    break_even_steps: int | None = None
    speedup: float | None = None
    thread_options: tuple[ThreadOption, ...] = ()
    objective: str = "time"

    @property
    def tie(self) -> bool:
        """Whether the best other device is about as fast: within 10 %, or nobody can be 70 % sure which is faster."""
        if self.speedup is None or self.confidence is None:
            return False
        return self.speedup <= 1.0 + TIE or self.confidence < SURE

    @property
    def verdict(self) -> str:
        """The chosen device; ``about the same`` for a tie."""
        return ABOUT_THE_SAME if self.tie else self.device


def decide(
    predictions: Mapping[str, Timed], steps: int | None, objective: Objective = TIME, unit: Unit = STEP
) -> Decision:
    """Choose the device that takes the least for ``steps`` steps (None: a long run, so one step alone decides).

    What is made small is the ``objective``: time, money or energy. Devices on which the workload does not fit in memory
    are left out; if it fits on none, the best one is still chosen, and the reason says so. ``unit`` is what it calls
    a step.

    Raises:
        ValueError: no predictions.
        PlacerError: a device's price or power is not known, and the objective asks for it.
    """
    if not predictions:
        raise ValueError("decide() needs the prediction of at least one device")
    fitting = {name: p for name, p in predictions.items() if p.fits}
    candidates = fitting or dict(predictions)
    counted = {name: objective.counted(p, steps) for name, p in candidates.items()}
    ranked = sorted(candidates, key=lambda name: (counted[name], not is_cpu(candidates[name].device)))
    first = ranked[0]
    for other in ranked[1:]:
        if is_cpu(candidates[other].device) and counted[other] <= counted[first] * (1 + EQUAL):
            first = other
    chosen = candidates[first]
    others = [candidates[name] for name in ranked if name != first]
    best_other = others[0] if others else None
    decision = Decision(
        device=chosen.device,
        threads=chosen.threads,
        confidence=1.0 if best_other is None else probability_faster(chosen, best_other, steps, objective),
        reason="",
        break_even_steps=_break_even(predictions, chosen, best_other, objective),
        speedup=None if best_other is None else _speedup(chosen, best_other, steps, objective),
        objective=objective.name,
    )
    told = ""
    if best_other is not None and decision.tie:
        close = decision.speedup is not None and decision.speedup <= 1.0 + TIE
        told = f": {ABOUT_THE_SAME}" if close else f": {ABOUT_THE_SAME}, as far as predictions tell"
        if objective.name == "time":
            told += what_tips_it(chosen, best_other, steps, decision.break_even_steps, unit)
    return replace(decision, reason=reason(chosen, best_other, predictions, steps, told, objective, unit))


def probability_faster(
    chosen: Timed, other: Timed, steps: int | None = None, objective: Objective = TIME
) -> float:
    """The probability that ``chosen`` takes less time than ``other``, each log-normal with the 90 % interval it states.

    Less money or energy, where that is the ``objective``: prices and watts are taken to be exact.

    With ``steps``, the one-time costs count too and dampen the relative uncertainty of the whole, as they are not
    part of the interval.
    """
    gap = _log(objective.counted(other, steps)) - _log(objective.counted(chosen, steps))
    spread = math.hypot(_sigma(chosen, steps), _sigma(other, steps))
    if spread == 0.0:
        return 0.5 if gap == 0.0 else float(gap > 0.0)
    return 0.5 * (1.0 + math.erf(gap / spread / math.sqrt(2.0)))


def break_even_steps(accelerator: Timed, cpu: Timed, objective: Objective = TIME) -> int | None:
    """The first number of steps after which ``accelerator`` is ahead; None if it never is."""
    here, there = objective.per_second(accelerator), objective.per_second(cpu)
    saved = there * cpu.step_seconds - here * accelerator.step_seconds
    if saved <= 0.0:
        return None
    extra = here * accelerator.one_time_seconds - there * cpu.one_time_seconds
    if extra <= 0.0:
        return 1
    return math.floor(extra / saved) + 1


def _sigma(prediction: Timed, steps: int | None) -> float:
    """Standard deviation of the log of the time that counts."""
    if not 0.0 < prediction.low < prediction.high:
        return 0.0
    sigma = math.log(prediction.high / prediction.low) / (2.0 * Z_90)
    if steps is None:
        return sigma
    total = counted_seconds(prediction, steps)
    return sigma * (steps * prediction.step_seconds / total) if total > 0.0 else sigma


def _log(amount: float) -> float:
    return math.log(max(amount, 1e-15))


def _speedup(chosen: Timed, other: Timed, steps: int | None, objective: Objective) -> float | None:
    """What counts on ``other`` over that on ``chosen``."""
    amount = objective.counted(chosen, steps)
    return objective.counted(other, steps) / amount if amount > 0.0 else None


def _break_even(
    predictions: Mapping[str, Timed], chosen: Timed, best_other: Timed | None, objective: Objective
) -> int | None:
    """Of the CPU (the chosen one of several) and the accelerator that was chosen, or that came closest to it."""
    cpus = [p for name, p in predictions.items() if is_cpu(name) and p.fits]
    if not cpus or best_other is None:
        return None
    cpu, accelerator = (chosen, best_other) if is_cpu(chosen.device) else (cpus[0], chosen)
    return None if is_cpu(accelerator.device) else break_even_steps(accelerator, cpu, objective)
