"""Predictions in, one choice out: which device is best, how sure that is, after how many steps it pays, and why."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from placer.decision.objective import EQUAL, STEP, TIE, TIME, Objective, Unit, counted_seconds, is_cpu
from placer.pricing import Cost
from placer.units import format_bytes, format_count, format_seconds

#: Differences below this share are none: predictions are not that exact.
SAME = 0.02


@dataclass(frozen=True)
class Point:
    """One way to run a workload: its seconds, dollars and joules; None where the last two are not known."""

    name: str
    seconds: float
    dollars: float | None = None
    joules: float | None = None

    @property
    def values(self) -> tuple[float | None, ...]:
        return self.seconds, self.dollars, self.joules


def pareto(points: Sequence[Point]) -> tuple[Point, ...]:
    """The points that no other one betters in something without being worse in anything else, in the order given.

    Differences below 2 % are none. Another one betters a point only where all is known of it that is known of the
    point.
    """
    return tuple(point for point in points if not any(_betters(other, point) for other in points))


def _betters(other: Point, point: Point) -> bool:
    pairs = [(theirs, ours) for theirs, ours in zip(other.values, point.values, strict=True) if ours is not None]
    if any(theirs is None or theirs > ours * (1.0 + SAME) for theirs, ours in pairs):
        return False
    return any(theirs is not None and theirs < ours * (1.0 - SAME) for theirs, ours in pairs)


def trade(other: Point, chosen: Point) -> str:
    """What ``other`` gives for what it costs beside ``chosen``: ``17% faster for 5.0× the money``; "" for neither."""
    faster = chosen.seconds / other.seconds - 1.0 if other.seconds else 0.0
    costs, saves = [], []
    for what, a, b in (("money", other.dollars, chosen.dollars), ("energy", other.joules, chosen.joules)):
        if a is None or b is None or not a or not b:
            continue
        if a > b * (1.0 + SAME):
            costs.append(f"{a / b:.1f}× the {what}" if a >= 1.095 * b else f"{a / b - 1.0:.0%} more {what}")
        elif a < b * (1.0 - SAME):
            saves.append(f"{1.0 - a / b:.0%} less {what}")
    if faster > SAME:
        gain = f"{faster:.0%} faster" if faster < 1.0 else f"{1.0 + faster:.1f}× as fast"
        saves.insert(0, gain)
    elif faster < -SAME:
        costs.insert(0, f"{1.0 / (1.0 + faster):.1f}× the time" if faster < -0.087 else f"{-faster:.0%} more time")
    gains, prices = " and ".join(saves), " and ".join(costs)
    if gains and prices:
        return f"{gains} for {prices}"
    return gains or prices


def reason(
    chosen: Cost,
    best_other: Cost | None,
    predictions: Mapping[str, Cost],
    steps: int | None,
    tie: str = "",
    objective: Objective = TIME,
    unit: Unit = STEP,
) -> str:
    """The times that decided it, and what bounds each of the two; memory or one-time costs where those decided it.

    The money or the energy, where that is the ``objective``. ``tie`` is what follows where the two are about the same.
    ``unit`` is what a step is called.
    """
    left_out = min(
        (p for p in predictions.values() if not p.fits and p is not chosen),
        key=lambda p: objective.counted(p, steps),
        default=None,
    )
    if not chosen.fits:
        return (
            f"{chosen.device}: the {_BEST[objective.name]}, though it needs "
            f"{format_bytes(chosen.peak_memory_bytes)} of memory and no device has that much free"
        )
    if left_out is not None and objective.counted(left_out, steps) < objective.counted(chosen, steps):
        better = {"time": "faster", "cost": "cheaper", "energy": "more sparing"}[objective.name]
        return (
            f"{chosen.device}: {left_out.device} would be {better} ({_times(left_out, steps, unit)} against "
            f"{_times(chosen, steps, unit)}), but does not fit: {_memory(left_out)}"
        )
    if best_other is None:
        only = "there is no other device to choose" if len(predictions) == 1 else "the only device it fits on"
        return f"{chosen.device}: {only}; {unit.one} takes {format_seconds(chosen.step_seconds)}"
    if objective.name != "time":
        return _amounts(chosen, best_other, steps, objective, unit) + tie
    if steps is not None and (tie or _one_time_matters(chosen, best_other, steps)):
        return _totals(chosen, best_other, steps, unit) + tie
    return (
        f"{chosen.device}: {unit.one} takes {format_seconds(chosen.step_seconds)} there{_bound(chosen)} and "
        f"{format_seconds(best_other.step_seconds)} on {best_other.device}{_bound(best_other)}{tie}"
    )


def point(prediction: Cost, steps: int | None, objective: Objective) -> Point:
    """What a device takes of time, and of money and energy where that is known and counts; of a step, or of all."""
    seconds, hourly = counted_seconds(prediction, steps), objective.dollars_per_hour(prediction)
    watts = objective.watts_of(prediction) if objective.name == "energy" else None
    return Point(
        prediction.device,
        seconds,
        None if hourly is None else hourly * seconds / 3600.0,
        None if watts is None else watts * seconds,
    )


def what_tips_it(chosen: Cost, other: Cost, steps: int | None, break_even: int | None, unit: Unit = STEP) -> str:
    """What would favour the accelerator of two devices that are about the same, as far as its times tell; else "".

    ``break_even`` is the number of steps that repay its one-time cost. Nothing is priced for this.
    """
    pair = [p for p in (chosen, other) if not is_cpu(p.device)]
    if len(pair) != 1:
        return ""
    accelerator, cpu = (other, chosen) if pair[0] is other else (chosen, other)
    if steps is not None and break_even is not None and break_even > steps:
        return f"; {accelerator.device} is ahead from {break_even:,} {unit.counted}s on"
    copies = accelerator.components.get("copy", 0.0)
    without = counted_seconds(accelerator, steps) - copies * (steps or 1)
    if without * (1.0 + TIE) < counted_seconds(cpu, steps):
        seconds = format_seconds(accelerator.step_seconds - copies)
        return f"; without its copies, {unit.one} on {accelerator.device} takes about {seconds}"
    return f"; a larger batch favours {accelerator.device}" if accelerator.bounded_by == "launches" else ""


#: The best device of all, by what is minimized.
_BEST = {"time": "fastest", "cost": "cheapest", "energy": "most sparing"}


def _amounts(chosen: Cost, other: Cost, steps: int | None, objective: Objective, unit: Unit) -> str:
    """What both cost, and what the other one gives for it."""
    here, there = (objective.amount(objective.counted(p, steps), steps) for p in (chosen, other))
    traded = trade(point(other, steps, objective), point(chosen, steps, objective))
    gives = f", {traded}" if traded else ""
    return f"{chosen.device}: {objective.spends(steps, unit)} {here} there and {there} on {other.device}{gives}"


def _memory(prediction: Cost) -> str:
    """What a workload needs of a device, and could have: what is free there, and what it holds already."""
    needed = f"it needs {format_bytes(prediction.peak_memory_bytes)} of memory"
    available = prediction.available_memory_bytes
    return needed if available is None else f"{needed} and can have {format_bytes(max(available, 0))}"


def _one_time_matters(chosen: Cost, other: Cost, steps: int) -> bool:
    """Whether the steps alone would not have decided it: they are equal, or shorter on the other device."""
    if other.step_seconds < chosen.step_seconds:
        return True
    same = other.step_seconds - chosen.step_seconds <= EQUAL * other.step_seconds
    return same and counted_seconds(chosen, steps) < counted_seconds(other, steps)


def _totals(chosen: Cost, other: Cost, steps: int, unit: Unit) -> str:
    totals = []
    for prediction, where in ((chosen, "there"), (other, f"on {other.device}")):
        once = prediction.one_time_seconds
        start = f" ({format_seconds(once)} of it to start)" if once else ""
        totals.append(f"{format_seconds(counted_seconds(prediction, steps))} {where}{start}")
    takes = f"{format_count(steps, unit.counted)} {'take' if steps > 1 else 'takes'}"
    return f"{chosen.device}: {takes} {totals[0]} and {totals[1]}"


def _times(prediction: Cost, steps: int | None, unit: Unit) -> str:
    if steps is None:
        return f"{format_seconds(prediction.step_seconds)} {unit.each}"
    return f"{format_seconds(counted_seconds(prediction, steps))} in all"


def _bound(prediction: Cost) -> str:
    """What takes most of its step, in brackets; "" where that is not known."""
    return "" if prediction.bounded_by is None else f" (bounded by {prediction.bounded_by})"


#: Below this probability that the chosen device is the faster one, too, devices are about the same.
SURE = 0.7
#: The verdict on a tie, in words.
ABOUT_THE_SAME = "about the same"
#: A 90 % interval of a normal distribution reaches this many standard deviations to either side.
Z_90 = 1.6448536269514722


@dataclass(frozen=True)
class ThreadOption:
    """A step on the CPU with this many threads, in seconds; ``low`` and ``high`` bound a 90 % interval.

    ``current`` tells the number of threads that the process has.
    """

    threads: int
    current: bool
    step_seconds: float
    low: float
    high: float


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
    predictions: Mapping[str, Cost], steps: int | None, objective: Objective = TIME, unit: Unit = STEP
) -> Decision:
    """Choose the device that takes the least for ``steps`` steps (None: a long run, so one step alone decides).

    What is minimized is the ``objective``: time, money or energy. Devices on which the workload does not fit in memory
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
    second = next((name for name in ranked if name != first), None)
    best_other = None if second is None else candidates[second]
    decision = Decision(
        device=chosen.device,
        threads=chosen.threads,
        confidence=1.0 if best_other is None else probability_faster(chosen, best_other, steps, objective),
        reason="",
        break_even_steps=_break_even(predictions, chosen, best_other, objective),
        speedup=None if second is None or counted[first] <= 0.0 else counted[second] / counted[first],
        objective=objective.name,
    )
    tie = ""
    if best_other is not None and decision.tie:
        close = decision.speedup is not None and decision.speedup <= 1.0 + TIE
        tie = f": {ABOUT_THE_SAME}" if close else f": {ABOUT_THE_SAME}, as far as predictions tell"
        if objective.name == "time":
            tie += what_tips_it(chosen, best_other, steps, decision.break_even_steps, unit)
    return replace(decision, reason=reason(chosen, best_other, predictions, steps, tie, objective, unit))


def probability_faster(chosen: Cost, other: Cost, steps: int | None = None, objective: Objective = TIME) -> float:
    """The probability that ``chosen`` takes less time than ``other``, each log-normal with the 90 % interval it states.

    Less money or energy, where that is the ``objective``: prices and watts are taken to be exact.

    With ``steps``, the one-time costs count too and dampen the relative uncertainty of the whole, as they are not
    part of the interval.
    """
    there, here = (max(objective.counted(cost, steps), 1e-15) for cost in (other, chosen))
    gap = math.log(there) - math.log(here)
    spread = math.hypot(_sigma(chosen, steps), _sigma(other, steps))
    if spread == 0.0:
        return 0.5 if gap == 0.0 else float(gap > 0.0)
    return 0.5 * (1.0 + math.erf(gap / spread / math.sqrt(2.0)))


def break_even_steps(accelerator: Cost, cpu: Cost, objective: Objective = TIME) -> int | None:
    """The first number of steps after which ``accelerator`` is ahead; None if it never is."""
    here, there = objective.per_second(accelerator), objective.per_second(cpu)
    saved = there * cpu.step_seconds - here * accelerator.step_seconds
    if saved <= 0.0:
        return None
    extra = here * accelerator.one_time_seconds - there * cpu.one_time_seconds
    if extra <= 0.0:
        return 1
    return math.floor(extra / saved) + 1


def _sigma(prediction: Cost, steps: int | None) -> float:
    """Standard deviation of the log of the time that counts."""
    if not 0.0 < prediction.low < prediction.high:
        return 0.0
    sigma = math.log(prediction.high / prediction.low) / (2.0 * Z_90)
    if steps is None:
        return sigma
    total = counted_seconds(prediction, steps)
    return sigma * (steps * prediction.step_seconds / total) if total > 0.0 else sigma


def _break_even(
    predictions: Mapping[str, Cost], chosen: Cost, best_other: Cost | None, objective: Objective
) -> int | None:
    """Of the CPU (the chosen one of several) and the accelerator that was chosen, or that came closest to it."""
    cpus = [p for name, p in predictions.items() if is_cpu(name) and p.fits]
    if not cpus or best_other is None:
        return None
    cpu, accelerator = (chosen, best_other) if is_cpu(chosen.device) else (cpus[0], chosen)
    return None if is_cpu(accelerator.device) else break_even_steps(accelerator, cpu, objective)
