"""Where to run a workload or a job: every machine with its time, money and energy, the best first."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import torch
from torch import nn

from placer import decision as deciding
from placer import profile as profiles
from placer.api import checked_work
from placer.decision import (
    ABOUT_THE_SAME,
    JOB,
    OBJECTIVES,
    SAME,
    TIME,
    Candidate,
    Objective,
    Point,
    PricedPart,
    counted_seconds,
    decide,
    missing,
    pareto,
    price,
    trace_parts,
    trade,
    whole,
)
from placer.errors import PlacerError, ProfileError
from placer.fleets.data import LIMITS, FleetData, FleetRow, needed_memory
from placer.fleets.machine import Machine, machine_named
from placer.pricing import Cost
from placer.profile import Profile
from placer.units import format_ratio
from placer.workload import Job, Workload, check_choice

_Name = TypeVar("_Name", bound=Hashable)
_BEST = {"time": "fastest", "cost": "cheapest", "energy": "least energy"}


class Fleet(FleetData):
    """Machines for one workload or job, the best first: see ``FleetData`` for what it holds."""

    def __str__(self) -> str:
        return self.to_text()

    def to_text(self, *, width: int = 100, color: bool = False) -> str:
        """Text at most ``width`` columns wide; with ANSI codes only where ``color`` asks for them."""
        from placer.fleets.rendering import render_text

        return render_text(self, width=width, color=color)

    def to_html(self) -> str:
        """One page without external parts. Raises PlacerError without ``torch-placer[report]``."""
        from placer.fleets.rendering import render_html

        return render_html(self)

    def to_nfd(self) -> str:
        """A feature file for Kubernetes node feature discovery. Raises ValueError for more than one machine."""
        from placer.fleets.formats import nfd

        return nfd(self)

    def to_slurm(self) -> str:
        """The ``#SBATCH`` lines that ask Slurm for the best machine. Raises PlacerError where there is none."""
        from placer.fleets.formats import slurm

        return slurm(self)


def fleet(
    model: Callable[..., Any] | Job,
    batch_shape: Any = None,
    *,
    machines: Iterable[Machine | str] | Machine | str,
    objective: str = "time",
    target: float | None = None,
    example: Any = None,
    mode: str | None = None,
    loss: Callable[..., Any] | None = None,
    optimizer: str | torch.optim.Optimizer | None = None,
    steps: int | None = None,
    data: str = "host",
    autocast: torch.dtype | bool | None = None,
    modules: nn.Module | Iterable[nn.Module] | None = None,
) -> Fleet:
    """Where a step, or a job, should run: every machine with its time, money and energy, the best first.

    Nothing is run or moved. Arguments that ``placer.explain`` has too mean the same.

    Args:
        machines: ``Machine`` objects, names of profiles, or GPUs of the catalog (``"T4"``) beside this machine's CPU.
        objective: ``"time"``, ``"cost"`` (for machines with a price) or ``"energy"``.
        target: seconds. Of all steps, or repeats of the job, where their number is given; else of one. What reaches it
            comes first, the cheapest at the top.

    Raises:
        ValueError, TypeError: a wrong argument.
        PlacerError: nothing is called so (ProfileMissing, UnknownGPU), no machine can price it, or the step cannot be
            traced (TraceError).
    """
    given = (machines,) if isinstance(machines, (Machine, str)) else tuple(machines)
    what = checked_work(
        model, batch_shape, example=example, mode=mode, loss=loss, optimizer=optimizer, steps=steps, data=data,
        autocast=autocast, modules=modules,
    )  # fmt: skip
    return compare(what, [_machine(one) for one in given], objective=objective, target=target)


def _machine(given: Any) -> Machine:
    if isinstance(given, Machine):
        return given
    if isinstance(given, str):
        return machine_named(given)
    raise TypeError(f"a machine is a placer.Machine, or the name of a profile or a GPU, not {given!r}")


class Traced(deciding.Traced):
    """A workload or a job, and the traces of its steps: what does not depend on the machine."""

    def totals(self, machine: Machine, known: dict[tuple[str, int], Cost] | None = None) -> dict[str, Cost]:
        """The step or the job on each device of a machine. Raises ProfileError.

        ``known`` holds what was priced before, by device and profile: machines share CPUs.
        """
        found: dict[str, Cost] = {}
        known = {} if known is None else known
        for device, profile in machine.sources:
            if missing(self, device) is None:
                key = device, id(profile)
                if key not in known:
                    known[key] = self._on(device, profile)
                found[device] = known[key]
        if not found:
            raise ProfileError(f"no device of {machine.name} can run it")
        return found

    def _on(self, device: str, profile: Profile) -> Cost:
        candidate = Candidate(device, device, profile, profiles.default_threads(profile))
        parts = [
            PricedPart(part.name, part.count, {device: price(part, candidate)}, {}, part.model) for part in self.parts
        ]
        return TIME.told(whole(parts, self.unit, self.repeats)[device])


def traced(what: Workload | Job) -> Traced:
    """Trace every step of a workload or a job. Raises TraceError."""
    return Traced(**vars(trace_parts(what)))


def compare(
    what: Workload | Job | Traced, machines: Sequence[Machine], *, objective: str = "time", target: float | None = None
) -> Fleet:
    """Where it should run, the best machine first. Machines of one kind are priced once.

    ``objective`` is ``"time"``, ``"cost"`` or ``"energy"``. ``target`` are the seconds that all steps may take, or all
    repeats of a job, or one of them in a long run: machines that reach it come first, the cheapest of them at the top.
    A machine whose profile cannot price it is left out, with a note.

    Raises:
        ValueError, TypeError: no machine, or a wrong argument. Nothing is traced before.
        TraceError: the step cannot be traced.
        PlacerError: no machine can price it.
    """
    check_choice("objective", objective, OBJECTIVES)
    _check_target(target)
    if not machines:
        raise ValueError("machines is empty: name at least one profile, GPU or machine to compare")
    known = what if isinstance(what, Traced) else traced(what)
    alike: dict[tuple[Hashable, float | None], list[Machine]] = {}
    for machine in machines:
        alike.setdefault((machine.kind, machine.price), []).append(machine)
    prices: dict[Hashable, Mapping[str, Cost] | str] = {}
    devices: dict[tuple[str, int], Cost] = {}
    rows: dict[tuple[Hashable, float | None], FleetRow] = {}
    left_out: dict[str, list[str]] = {}
    for (sort, hourly), members in alike.items():
        if sort not in prices:
            try:
                prices[sort] = known.totals(members[0], devices)
            except ProfileError as error:
                prices[sort] = str(error)
        totals = prices[sort]
        if isinstance(totals, str):
            left_out.setdefault(totals, []).extend(machine.name for machine in members)
        else:
            rows[sort, hourly] = _row(members[0], totals, known.repeats, objective, target)
    notes = tuple(f"{', '.join(names)} left out: {why}" for why, names in left_out.items())
    if not rows:
        raise PlacerError(f"no machine could be priced: {'; '.join(notes)}")
    each = (
        replace(row, machine=machine.name, count=machine.count, gpu=machine.gpu, note=machine.note)
        for key, row in ranked(rows, objective, target).items()
        for machine in alike[key]
    )
    unit = "job" if known.unit is JOB else "step"
    return Fleet(tuple(each), known.facts, objective, target, unit, known.repeats, notes)


def _check_target(target: float | None) -> None:
    if target is not None and (isinstance(target, bool) or not isinstance(target, (int, float))):
        raise TypeError(f"target must be seconds, not {target!r}")
    if target is not None and not 0.0 < target < math.inf:
        raise ValueError(f"target must be seconds above 0, not {target!r}")


def _row(
    machine: Machine, totals: Mapping[str, Cost], count: int | None, objective: str, target: float | None
) -> FleetRow:
    """A machine on the best of its devices: the fastest, or the most sparing of those that reach the target."""
    price = () if machine.price is None else tuple((name, machine.price) for name in totals)
    wanted = Objective("energy" if objective == "energy" else "time", price=price)
    best = decide(totals, count)
    if objective == "energy" and all(each.watts is not None for each in totals.values()):
        reach = {n: t for n, t in totals.items() if t.fits and (target is None or counted_seconds(t, count) <= target)}
        if reach or target is None:
            best = decide(reach or totals, count, wanted)
    devices = {name: wanted.told(each) for name, each in totals.items()}
    return FleetRow(machine.name, machine.count, best.device, devices, machine.gpu, machine.note)


def ranked(rows: Mapping[_Name, FleetRow], objective: str, target: float | None) -> dict[_Name, FleetRow]:
    """The rows in order: where it fits, where it reaches the target (cheapest first), and by what is made small."""
    rows = {n: replace(row, reaches=None if target is None else row.seconds <= target) for n, row in rows.items()}
    order = sorted(rows, key=lambda name: _key(rows[name], objective, target))
    if objective == "time" and target is None:
        first = _cheapest_of_the_fastest(rows, order)
        order = [first, *(name for name in order if name != first)]
    best = rows[order[0]]
    points = {name: _point(rows[name], objective) for name in order if rows[name].fits}
    front = pareto(list(points.values()))
    return {
        name: replace(
            rows[name], verdict=_verdict(rows[name], best, objective, target), pareto=points.get(name) in front
        )
        for name in order
    }


def _cheapest_of_the_fastest(rows: Mapping[_Name, FleetRow], order: Sequence[_Name]) -> _Name:
    """The first of the order, or a cheaper one whose time is the same, as far as predictions tell."""
    first = rows[order[0]]
    known = [(name, rows[name].dollars) for name in order if rows[name].fits == first.fits
             and rows[name].seconds <= (1.0 + SAME) * first.seconds]  # fmt: skip
    priced = [(dollars, number, name) for number, (name, dollars) in enumerate(known) if dollars is not None]
    return min(priced)[2] if priced and first.dollars is not None else order[0]


def _key(row: FleetRow, objective: str, target: float | None) -> tuple[bool, bool, float, float]:
    aim = objective
    if target is not None and (objective == "time" or not row.reaches):
        aim = "cost" if row.reaches else "time"  # the cheapest that reaches it, else what comes closest
    amount = {"time": row.seconds, "cost": row.dollars, "energy": row.joules}[aim]
    return not row.fits, target is not None and not row.reaches, math.inf if amount is None else amount, row.seconds


def _point(row: FleetRow, objective: str) -> Point:
    return Point(row.machine, row.seconds, row.dollars, row.joules if objective == "energy" else None)


def _verdict(row: FleetRow, best: FleetRow, objective: str, target: float | None) -> str:
    if not row.fits:
        return f"does not fit: {needed_memory(row)}"
    if row.reaches is False and target is not None:
        limit = LIMITS.get(row.bounded_by or "", "")
        by = f", bounded by {limit}" if limit else ""
        return f"{format_ratio(row.seconds / target)} the target{by}"
    if row is best:
        return _of_the_best(row, objective, target)
    return trade(_point(row, objective), _point(best, objective)) or ABOUT_THE_SAME


def _of_the_best(row: FleetRow, objective: str, target: float | None) -> str:
    aim = "cost" if target is not None and objective == "time" else objective  # as in ``_key``
    known = {"time": True, "cost": row.dollars is not None, "energy": row.joules is not None}[aim]
    if target is not None:
        return f"{_BEST[aim]} that reaches the target" if known else "reaches the target"
    return _BEST[aim] if known else f"no {'price' if aim == 'cost' else 'power'} is known"
