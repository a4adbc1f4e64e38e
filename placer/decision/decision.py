"""Costs in, one choice out: which device is best, how sure that is, after how many steps it pays, and why."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

import torch

from placer.decision.objective import STEP, TIME, Objective, Unit, is_cpu
from placer.pricing import Z90, Cost
from placer.units import format_bytes, format_seconds

_Name = TypeVar("_Name", bound=Hashable)
#: Below this relative difference two times are equal.
EQUAL = 1e-9
#: Two devices are about the same where what counts differs by no more than this share: predictions, and measurements on
#: a shared machine, are not more exact than that.
TIE = 0.10
#: Below this probability that the chosen device is the faster one, too, devices are about the same.
SURE = 0.7
#: The verdict on a tie, in words.
ABOUT_THE_SAME = "about the same"
#: Differences below this share are none between machines: predictions are not that exact.
SAME = 0.02
#: What is best of all, and better than another, by what is minimized.
_BEST = {"time": "fastest", "cost": "cheapest", "energy": "most sparing"}
_BETTER = {"time": "faster", "cost": "cheaper", "energy": "more sparing"}


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


def unpredicted(device: str, reason: str) -> Decision:
    """A device that was taken without a prediction."""
    return Decision(device, torch.get_num_threads(), None, reason)


def decide(costs: Mapping[str, Cost], steps: int | None, objective: Objective = TIME, unit: Unit = STEP) -> Decision:
    """Choose the device that takes the least for ``steps`` steps (None: a long run, so one step alone decides).

    What is minimized is the ``objective``: time, money or energy. Devices on which the workload does not fit in memory
    are left out; if it fits on none, the best one is still chosen, and the reason says so. Of equal ones the CPU is
    chosen. ``unit`` is what it calls a step.

    Raises:
        ValueError: no costs.
        PlacerError: a device's price or power is not known, and the objective asks for it.
    """
    if not costs:
        raise ValueError("decide() needs the cost of at least one device")
    applied = [objective.applied(cost, steps) for cost in costs.values()]
    candidates = [cost for cost in applied if cost.fits] or applied
    least = min(map(objective.counted, candidates)) * (1.0 + EQUAL)
    chosen = min(candidates, key=lambda cost: (objective.counted(cost) > least, not is_cpu(cost.device)))
    others = [cost for cost in candidates if cost is not chosen]
    other = min(others, key=objective.counted, default=None)
    decision = Decision(
        device=chosen.device,
        threads=chosen.threads,
        confidence=1.0 if other is None else probability_better(chosen, other, objective),
        reason="",
        break_even_steps=_break_even(applied, chosen, other, objective),
        speedup=None if other is None or not least else objective.counted(other) / objective.counted(chosen),
        objective=objective.name,
    )
    reason = _memory_decided(chosen, applied, objective)
    if not reason and other is None:
        only = "there is no other device to choose" if len(applied) == 1 else "the only device it fits on"
        reason = f"{chosen.device}: {only}; {unit.one} takes {format_seconds(chosen.step_seconds)}"
    elif not reason and other is not None:
        reason = _compared(chosen, other, steps, objective, unit)
        if decision.tie:
            reason += f": {ABOUT_THE_SAME}"
            if decision.speedup is None or decision.speedup > 1.0 + TIE:
                reason += ", as far as predictions tell"
    return replace(decision, reason=reason)


def probability_better(chosen: Cost, other: Cost, objective: Objective = TIME) -> float:
    """The probability that ``chosen`` takes less time than ``other``, each log-normal with the 90 % interval it states.

    Less money or energy, where that is the ``objective``: prices and watts are taken to be exact. One-time costs dampen
    the relative uncertainty of the whole, as they are not part of the interval.
    """
    there, here = (max(objective.counted(cost), 1e-15) for cost in (other, chosen))
    gap = math.log(there) - math.log(here)
    spread = math.hypot(_sigma(chosen), _sigma(other))
    if spread == 0.0:
        return 0.5 if gap == 0.0 else float(gap > 0.0)
    return 0.5 * (1.0 + math.erf(gap / spread / math.sqrt(2.0)))


def _sigma(cost: Cost) -> float:
    """Standard deviation of the log of the time that counts."""
    if not 0.0 < cost.low < cost.high:
        return 0.0
    sigma = math.log(cost.high / cost.low) / (2.0 * Z90)
    if cost.total_seconds is None:
        return sigma
    return sigma * (cost.total_seconds - cost.one_time_seconds) / cost.total_seconds if cost.total_seconds else sigma


def _break_even(costs: list[Cost], chosen: Cost, other: Cost | None, objective: Objective) -> int | None:
    """Of the CPU (the chosen one of several) and the accelerator that was chosen, or that came closest to it."""
    cpus = [cost for cost in costs if is_cpu(cost.device) and cost.fits]
    if not cpus or other is None:
        return None
    cpu, accelerator = (chosen, other) if is_cpu(chosen.device) else (cpus[0], chosen)
    return None if is_cpu(accelerator.device) else break_even_steps(accelerator, cpu, objective)


def break_even_steps(accelerator: Cost, cpu: Cost, objective: Objective = TIME) -> int | None:
    """The first number of steps after which ``accelerator`` is ahead; None if it never is."""
    here, there = objective.per_second(accelerator), objective.per_second(cpu)
    saved = there * cpu.step_seconds - here * accelerator.step_seconds
    if saved <= 0.0:
        return None
    extra = here * accelerator.one_time_seconds - there * cpu.one_time_seconds
    return 1 if extra <= 0.0 else math.floor(extra / saved) + 1


def _memory_decided(chosen: Cost, costs: list[Cost], objective: Objective) -> str:
    """What does not fit, where that is why a device was chosen; else ""."""
    device = chosen.device
    if not chosen.fits:
        needed = format_bytes(chosen.peak_memory_bytes)
        best = _BEST[objective.name]
        return f"{device}: the {best}, though it needs {needed} of memory and no device has that much free"
    full = min((cost for cost in costs if not cost.fits), key=objective.counted, default=None)
    if full is None or objective.counted(full) >= objective.counted(chosen):
        return ""
    amounts = f"{objective.amount(full)} against {objective.amount(chosen)}"
    needed = f"it needs {format_bytes(full.peak_memory_bytes)} of memory"
    if full.available_memory_bytes is not None:
        needed += f" and can have {format_bytes(max(full.available_memory_bytes, 0))}"
    return f"{device}: {full.device} would be {_BETTER[objective.name]} ({amounts}), but does not fit: {needed}"


def _compared(chosen: Cost, other: Cost, steps: int | None, objective: Objective, unit: Unit) -> str:
    """What both take, and what bounds a step or is paid once; of money and energy, what the other one gives for it."""
    spends = f"{chosen.device}: {objective.spends(steps, unit)}"
    here, there = objective.amount(chosen), objective.amount(other)
    if objective.name != "time":
        traded = trade(other, chosen, energy=objective.name == "energy")
        return f"{spends} {here} there and {there} on {other.device}{f', {traded}' if traded else ''}"
    return f"{spends} {here} there{_aside(chosen, steps)} and {there} on {other.device}{_aside(other, steps)}"


def _aside(cost: Cost, steps: int | None) -> str:
    """What of the whole is paid once, in brackets; in a long run, what bounds a step; "" for nothing."""
    if steps is None:
        return f" (bounded by {cost.bounded_by})" if cost.bounded_by else ""
    return f" ({format_seconds(cost.one_time_seconds)} of it to start)" if cost.one_time_seconds else ""


# --- time, money and energy together ----------------------------------------------------------------------------------


def pareto(costs: Mapping[_Name, Cost], *, energy: bool) -> frozenset[_Name]:
    """The names of those that no other one betters in something without being worse in anything else.

    Energy counts where ``energy`` says so. Differences below 2 % are none. Another one betters a cost only where all is
    known of it that is known of the cost.
    """
    amounts = {name: _amounts(cost, energy) for name, cost in costs.items()}
    unbettered: list[_Name] = []
    for name, ours in amounts.items():
        if not any(_betters(theirs, ours) for theirs in amounts.values()):
            unbettered.append(name)
    return frozenset(unbettered)


def _amounts(cost: Cost, energy: bool) -> tuple[float | None, ...]:
    return cost.seconds, cost.dollars, cost.joules if energy else None


def _betters(other: tuple[float | None, ...], cost: tuple[float | None, ...]) -> bool:
    better = False
    for theirs, ours in zip(other, cost, strict=True):
        if ours is None:
            continue
        if theirs is None or theirs > ours * (1.0 + SAME):
            return False
        better = better or theirs < ours * (1.0 - SAME)
    return better


def trade(other: Cost, chosen: Cost, *, energy: bool) -> str:
    """What ``other`` gives for what it costs beside ``chosen``: ``17% faster for 5.0× the money``; "" for neither."""
    faster = chosen.seconds / other.seconds - 1.0 if other.seconds else 0.0
    losses, gains = [], []
    if faster > SAME:
        gains.append(f"{faster:.0%} faster" if faster < 1.0 else f"{1.0 + faster:.1f}× as fast")
    elif faster < -SAME:
        losses.append(f"{1.0 / (1.0 + faster):.1f}× the time" if faster < -0.087 else f"{-faster:.0%} more time")
    (_, *theirs), (_, *ours) = _amounts(other, energy), _amounts(chosen, energy)
    for what, a, b in zip(("money", "energy"), theirs, ours, strict=True):
        if not a or not b:
            continue
        if a > b * (1.0 + SAME):
            losses.append(f"{a / b:.1f}× the {what}" if a >= 1.095 * b else f"{a / b - 1.0:.0%} more {what}")
        elif a < b * (1.0 - SAME):
            gains.append(f"{1.0 - a / b:.0%} less {what}")
    return " for ".join(filter(None, (" and ".join(gains), " and ".join(losses))))
