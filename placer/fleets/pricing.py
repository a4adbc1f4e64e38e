"""Prices a workload or a job on every kind of machine of a fleet: one trace, and one price a kind."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from placer import profile as profiles
from placer import tracing
from placer.decision import OBJECTIVES, Objective, Total, counted_seconds, decide, described, lacks, total
from placer.errors import PlacerError, ProfileError
from placer.explanation import DeviceRow, device_row
from placer.fleets.data import FleetRow
from placer.fleets.machine import Machine
from placer.fleets.ranking import ranked
from placer.fleets.result import Fleet
from placer.jobs import shared_models
from placer.pricing import Residence, predict
from placer.profile import Profile
from placer.tracing import Trace
from placer.workload import Job, Workload, check_choice


@dataclass(frozen=True)
class Traced:
    """A workload or a job, and the traces of its steps: what does not depend on the machine."""

    parts: tuple[tuple[float, Workload, Trace], ...]
    models: tuple[int, ...]
    count: int | None
    unit: str
    workload: Mapping[str, Any]

    def totals(self, machine: Machine, known: dict[tuple[str, int], Total] | None = None) -> dict[str, Total]:
        """The step or the job on each device of a machine. Raises ProfileError.

        ``known`` holds what was priced before, by device and profile: machines share CPUs.
        """
        found: dict[str, Total] = {}
        known = {} if known is None else known
        for device, profile in machine.sources:
            if not any(lacks(device, trace) for _, _, trace in self.parts):
                key = device, id(profile)
                found[device] = known[key] if key in known else known.setdefault(key, self._on(device, profile))
        if not found:
            raise ProfileError(f"no device of {machine.name} can run it")
        return found

    def _on(self, device: str, profile: Profile) -> Total:
        threads = profiles.default_threads(profile)
        predictions = [
            (count, predict(trace, profile, devices=(device,), threads=threads, data=workload.data,
                            residence=Residence(here=False), loading=workload.loading)[device])
            for count, workload, trace in self.parts
        ]  # fmt: skip
        return total(device, predictions[0][1].threads, predictions, models=self.models, repeats=self.count)


def traced(what: Workload | Job) -> Traced:
    """Trace every step of a workload or a job. Raises TraceError."""
    if isinstance(what, Workload):
        trace = tracing.trace(what)
        return Traced(((1.0, what, trace),), (0,), what.steps, "step", described(what, trace))
    traces = [tracing.trace(part.workload) for part in what.parts]
    parts = tuple((part.count, part.workload, trace) for part, trace in zip(what.parts, traces, strict=True))
    facts = {"target": "job", "parts": {part.name: part.count for part in what.parts}, "steps": what.repeats}
    return Traced(parts, shared_models(what.parts), what.repeats, "job", facts)


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
    prices: dict[Hashable, Mapping[str, Total] | str] = {}
    devices: dict[tuple[str, int], Total] = {}
    rows: dict[tuple[Hashable, float | None], FleetRow] = {}
    left_out: dict[str, list[str]] = {}
    for (kind, price), members in alike.items():
        if kind not in prices:
            prices[kind] = _attempt(partial(known.totals, members[0], devices))
        totals = prices[kind]
        if isinstance(totals, str):
            left_out.setdefault(totals, []).extend(machine.name for machine in members)
        else:
            rows[kind, price] = _row(members[0], totals, known.count, objective, target)
    notes = tuple(f"{', '.join(names)} left out: {why}" for why, names in left_out.items())
    if not rows:
        raise PlacerError(f"no machine could be priced: {'; '.join(notes)}")
    each = (
        replace(row, machine=machine.name, count=machine.count, gpu=machine.gpu, note=machine.note)
        for key, row in ranked(rows, objective, target).items()
        for machine in alike[key]
    )
    return Fleet(tuple(each), known.workload, objective, target, known.unit, known.count, notes)


def _check_target(target: float | None) -> None:
    if target is not None and (isinstance(target, bool) or not isinstance(target, (int, float))):
        raise TypeError(f"target must be seconds, not {target!r}")
    if target is not None and not 0.0 < target < math.inf:
        raise ValueError(f"target must be seconds above 0, not {target!r}")


def _row(
    machine: Machine, totals: Mapping[str, Total], count: int | None, objective: str, target: float | None
) -> FleetRow:
    """A machine on the best of its devices: the fastest, or the most sparing of those that reach the target."""
    price = () if machine.price is None else tuple((name, machine.price) for name in totals)
    wanted = Objective("energy" if objective == "energy" else "time", price=price)
    best = decide(totals, count)
    if objective == "energy" and all(each.watts is not None for each in totals.values()):
        reach = {n: t for n, t in totals.items() if t.fits and (target is None or counted_seconds(t, count) <= target)}
        if reach or target is None:
            best = decide(reach or totals, count, wanted)
    devices: dict[str, DeviceRow] = {name: device_row(each, wanted) for name, each in totals.items()}
    return FleetRow(machine.name, machine.count, best.device, devices, machine.gpu, machine.note)


def _attempt(price: Callable[[], Mapping[str, Total]]) -> Mapping[str, Total] | str:
    try:
        return price()
    except ProfileError as error:
        return str(error)
