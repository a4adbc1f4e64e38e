"""Where to run a workload or a job: every machine with its time, money and energy, the best first."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from placer.decision import (
    ABOUT_THE_SAME,
    JOB,
    OBJECTIVES,
    SAME,
    Candidate,
    Candidates,
    Objective,
    Question,
    Traced,
    answer,
    decide,
    pareto,
    trace_parts,
    trade,
)
from placer.errors import PlacerError
from placer.fleets.answer import Fleet, FleetRow
from placer.fleets.machine import Machine, machine_named
from placer.pricing import Cost
from placer.profile import Profile, default_threads
from placer.units import format_ratio
from placer.workload import Job, Workload, check_choice, make_workload

_BEST = {"time": "fastest", "cost": "cheapest", "energy": "least energy"}


def fleet(
    model: Callable[..., Any] | Job,
    batch: Any = None,
    *,
    machines: Iterable[Machine | str] | Machine | str,
    objective: str = "time",
    target: float | None = None,
    **workload: Any,
) -> Fleet:
    """Where a step, or a job, should run: every machine with its time, money and energy, the best first.

    Nothing is run or moved.

    Args:
        model: as in ``placer.explain``, and so is ``batch``.
        machines: ``Machine`` objects, names of profiles, or GPUs of the catalog (``"T4"``) beside this machine's CPU.
        objective: ``"time"``, ``"cost"`` (for machines with a price) or ``"energy"``.
        target: seconds. Of all steps, or repeats of the job, where their number is given; else of one. What reaches it
            comes first, the cheapest at the top.
        workload: the arguments of ``placer.explain`` that say what to run: ``mode``, ``loss`` (of the output
            alone), ``optimizer``, ``steps``, ``data``, ``outputs``, ``autocast``, ``modules``.

    Raises:
        ValueError, TypeError: a wrong argument.
        PlacerError: nothing is called so (ProfileMissing, UnknownGPU), no machine can price it, or the step cannot be
            traced (TraceError).
    """
    several = (machines,) if isinstance(machines, (Machine, str)) else tuple(machines)
    for machine in several:
        if not isinstance(machine, (Machine, str)):
            raise TypeError(f"a machine is a placer.Machine, or the name of a profile or a GPU, not {machine!r}")
    work = work_of(model, batch, **workload)
    named = [machine_named(machine) if isinstance(machine, str) else machine for machine in several]
    return rank(work, named, objective=objective, target=target)


def work_of(
    model: Callable[..., Any] | Workload | Job | Traced, batch: Any = None, **workload: Any
) -> Workload | Job | Traced:
    """A model or a step as a workload; what is one already takes no other arguments. Raises ValueError, TypeError."""
    if not isinstance(model, (Workload, Job, Traced)):
        return make_workload(model, batch, **workload)
    asked = sorted(name for name, value in workload.items() if value is not None and (name, value) != ("data", "host"))
    if batch is not None or asked:
        names = ", ".join(["batch"] * (batch is not None) + asked)
        raise ValueError(f"a {type(model).__name__} says what to run already: leave out {names}")
    return model


def rank(
    work: Workload | Job | Traced, machines: Sequence[Machine], *, objective: str = "time", target: float | None = None
) -> Fleet:
    """``fleet`` of work that was traced, or can be. A device that several machines share is priced once.

    What a profile cannot price, and what cannot run the work, is left out, with a note.

    Raises:
        ValueError, TypeError: no machine, or a wrong argument. Nothing is traced before.
        TraceError: the step cannot be traced.
        PlacerError: no machine can price it.
    """
    check_choice("objective", objective, OBJECTIVES)
    if target is not None and (isinstance(target, bool) or not isinstance(target, (int, float))):
        raise TypeError(f"target must be seconds, not {target!r}")
    if target is not None and not 0.0 < target < math.inf:
        raise ValueError(f"target must be seconds above 0, not {target!r}")
    if not machines:
        raise ValueError("machines is empty: name at least one profile, GPU or machine to compare")
    steps = trace_parts(work)
    alike: dict[Hashable, list[Machine]] = {}
    for machine in machines:
        alike.setdefault((machine.kind, machine.price), []).append(machine)
    rows: dict[Hashable, FleetRow] = {}
    left_out: dict[str, list[str]] = {}
    priced: dict[tuple[str, int], Cost | str] = {}  # by device and profile
    for kind, members in alike.items():
        costs: dict[str, Cost] = {}
        for device, profile in members[0].sources:
            key = device, id(profile)
            if key not in priced:
                priced[key] = _cost(steps, device, profile)
            cost = priced[key]
            if isinstance(cost, str):
                left_out.setdefault(cost, []).extend(f"{device} of {machine.name}" for machine in members)
            else:
                costs[device] = replace(cost, dollars_per_hour=members[0].price)
        if costs:
            best = _best_device(costs, steps.repeats, objective, target)
            reaches = None if target is None else costs[best].seconds <= target
            rows[kind] = FleetRow(costs[best], machine="", count=1, devices=costs, reaches=reaches)
    notes = tuple(f"{', '.join(names)} left out: {why}" for why, names in left_out.items())
    if not rows:
        raise PlacerError(f"no machine could be priced: {'; '.join(notes)}")
    in_order: list[FleetRow] = []
    for kind, row in ranked(rows, objective, target).items():
        for machine in alike[kind]:
            named = replace(row, machine=machine.name, count=machine.count, gpu=machine.gpu, note=machine.note)
            in_order.append(named)
    unit = "job" if steps.unit == JOB else "step"
    return Fleet(tuple(in_order), steps.facts, objective, target, unit, steps.repeats, notes)


def _cost(steps: Traced, device: str, profile: Profile) -> Cost | str:
    """What the step or the job takes on a device of a profile; else why it cannot be priced or run there."""
    if (obstacle := steps.obstacles.on(device, here=False)) is not None:
        return obstacle
    candidate = Candidate(device, device, profile, default_threads(profile))
    try:
        return answer(Question(steps, Candidates((candidate,), profile))).costs[device]
    except PlacerError as error:
        return str(error)


def _best_device(costs: Mapping[str, Cost], count: int | None, objective: str, target: float | None) -> str:
    """The fastest device of a machine, or the most sparing of those that reach the target."""
    if objective == "energy" and all(cost.watts is not None for cost in costs.values()):
        reach = {n: cost for n, cost in costs.items() if cost.fits and (target is None or cost.seconds <= target)}
        if reach or target is None:
            return decide(reach or costs, count, Objective("energy")).device
    return decide(costs, count).device


def ranked(rows: Mapping[Hashable, FleetRow], objective: str, target: float | None) -> dict[Hashable, FleetRow]:
    """The rows in order: where it fits, where it reaches the target (cheapest first), and by what is minimized."""
    order = sorted(rows, key=lambda kind: _place(rows[kind], objective))
    first = rows[order[0]]
    if objective == "time" and target is None and first.dollars is not None:
        # The cheapest of those whose times are the same, as far as predictions tell.
        alike = [kind for kind in order if rows[kind].cost.fits == first.cost.fits]
        near = [kind for kind in alike if rows[kind].seconds <= (1.0 + SAME) * first.seconds]
        cheapest = min(near, key=lambda kind: _or_infinity(rows[kind].dollars))
        order = [cheapest, *(kind for kind in order if kind != cheapest)]
    best, energy = rows[order[0]], objective == "energy"
    front = pareto({kind: rows[kind].cost for kind in order if rows[kind].cost.fits}, energy=energy)
    return {
        kind: replace(rows[kind], verdict=_verdict(rows[kind], best, objective, target), pareto=kind in front)
        for kind in order
    }


def _aim(row: FleetRow, objective: str) -> str:
    """What is minimized: of what reaches a target the money, of what does not the time."""
    if row.reaches is None:
        return objective
    return "time" if not row.reaches else "cost" if objective == "time" else objective


def _amount(row: FleetRow, objective: str) -> float | None:
    """What is compared of a row."""
    return {"time": row.seconds, "cost": row.dollars, "energy": row.cost.joules}[_aim(row, objective)]


def _place(row: FleetRow, objective: str) -> tuple[bool, bool, float, float]:
    return not row.cost.fits, row.reaches is False, _or_infinity(_amount(row, objective)), row.seconds


def _or_infinity(amount: float | None) -> float:
    return math.inf if amount is None else amount


def _verdict(row: FleetRow, best: FleetRow, objective: str, target: float | None) -> str:
    if not row.cost.fits:
        return f"does not fit: {row.needed}"
    if row.reaches is False and target is not None:
        by = f", bounded by {row.limit}" if row.limit else ""
        return f"{format_ratio(row.seconds / target)} the target{by}"
    if row is not best:
        return trade(row.cost, best.cost, energy=objective == "energy") or ABOUT_THE_SAME
    aim, amount_is_known = _aim(row, objective), _amount(row, objective) is not None
    if target is not None:
        return f"{_BEST[aim]} that reaches the target" if amount_is_known else "reaches the target"
    return _BEST[aim] if amount_is_known else f"no {'price' if aim == 'cost' else 'power'} is known"
