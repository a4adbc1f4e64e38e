"""Says in one sentence why a device was chosen."""

from __future__ import annotations

from collections.abc import Mapping

from placer.decision.objective import STEP, TIME, Objective, Unit
from placer.decision.timed import EQUAL, TIE, Timed, counted_seconds, is_cpu
from placer.decision.trade_offs import Point, trade
from placer.units import format_bytes, format_count, format_seconds


def reason(
    chosen: Timed, best_other: Timed | None, predictions: Mapping[str, Timed], steps: int | None, tie: str = "",
    objective: Objective = TIME, unit: Unit = STEP,
) -> str:  # fmt: skip
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


def point(prediction: Timed, steps: int | None, objective: Objective) -> Point:
    """What a device takes of time, and of money and energy where that is known and counts; of a step, or of all."""
    seconds, hourly = counted_seconds(prediction, steps), objective.dollars_per_hour(prediction)
    watts = objective.watts_of(prediction) if objective.name == "energy" else None
    return Point(
        prediction.device, seconds, None if hourly is None else hourly * seconds / 3600.0,
        None if watts is None else watts * seconds,
    )  # fmt: skip


def what_tips_it(
    chosen: Timed, other: Timed, steps: int | None, break_even: int | None, unit: Unit = STEP
) -> str:
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


#: The best device of all, by what is made small.
_BEST = {"time": "fastest", "cost": "cheapest", "energy": "most sparing"}


def _amounts(chosen: Timed, other: Timed, steps: int | None, objective: Objective, unit: Unit) -> str:
    """What both cost, and what the other one gives for it."""
    here, there = (objective.amount(objective.counted(p, steps), steps) for p in (chosen, other))
    traded = trade(point(other, steps, objective), point(chosen, steps, objective))
    gives = f", {traded}" if traded else ""
    return f"{chosen.device}: {objective.spends(steps, unit)} {here} there and {there} on {other.device}{gives}"


def _memory(prediction: Timed) -> str:
    """What a workload needs of a device, and could have: what is free there, and what it holds already."""
    needed = f"it needs {format_bytes(prediction.peak_memory_bytes)} of memory"
    available = prediction.available_memory_bytes
    return needed if available is None else f"{needed} and can have {format_bytes(max(available, 0))}"


def _one_time_matters(chosen: Timed, other: Timed, steps: int) -> bool:
    """Whether the steps alone would not have decided it: they are equal, or shorter on the other device."""
    if other.step_seconds < chosen.step_seconds:
        return True
    same = other.step_seconds - chosen.step_seconds <= EQUAL * other.step_seconds
    return same and counted_seconds(chosen, steps) < counted_seconds(other, steps)


def _totals(chosen: Timed, other: Timed, steps: int, unit: Unit) -> str:
    def total(prediction: Timed) -> str:
        return format_seconds(counted_seconds(prediction, steps))

    def start(prediction: Timed) -> str:
        once = prediction.one_time_seconds
        return f" ({format_seconds(once)} of it to start)" if once else ""

    return (
        f"{chosen.device}: {format_count(steps, unit.counted)} {'take' if steps > 1 else 'takes'} {total(chosen)} "
        f"there{start(chosen)} and {total(other)} on {other.device}{start(other)}"
    )


def _times(prediction: Timed, steps: int | None, unit: Unit) -> str:
    if steps is None:
        return f"{format_seconds(prediction.step_seconds)} {unit.each}"
    return f"{format_seconds(counted_seconds(prediction, steps))} in all"


def _bound(prediction: Timed) -> str:
    """What takes most of its step, in brackets; "" where that is not known."""
    return "" if prediction.bounded_by is None else f" (bounded by {prediction.bounded_by})"
