"""The Table that every answer is read from: what a step or a job takes on each device, and the decision it leads to."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from placer.decision.decision import Decision, ThreadOption, decide
from placer.decision.objective import STEP, TIME, Objective, Unit, counted_seconds
from placer.decision.steps import StepIdentity
from placer.pricing import Cost, Prediction, weakest
from placer.profile import Profile
from placer.units import format_count, format_seconds


@dataclass(frozen=True)
class PricedPart:
    """A part by device; holds no reference to the model. ``identity`` names its step in the history."""

    name: str
    count: float
    predictions: Mapping[str, Prediction]
    facts: Mapping[str, Any]
    model: int = 0
    identity: StepIdentity = field(default_factory=StepIdentity)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class RealSteps:
    """What real steps a time rests on, in words: those of the very step (``same_step``), or one of another size."""

    said: str
    same_step: bool = True


@dataclass(frozen=True)
class Table:
    """A step or a job by device: the ``parts`` that it is made of, and the ``costs`` they add up to.

    ``profile`` is the one that is compared with; ``this_machine``: it is of this machine. ``beside`` names the GPUs
    that nobody asked about. ``thread_options`` are the numbers of CPU threads that were compared, none unless that was
    asked for. ``left_out`` says which devices cannot be used, ``occupied`` which ones other jobs keep busy. ``real``
    are the real steps that times rest on, by device: ``predicted`` is the table without them then.
    """

    parts: tuple[PricedPart, ...]
    profile: Profile
    facts: Mapping[str, Any]
    repeats: int | None = None
    unit: Unit = STEP
    objective: Objective = TIME
    notes: tuple[str, ...] = ()
    beside: frozenset[str] = frozenset()
    thread_options: tuple[ThreadOption, ...] = ()
    left_out: tuple[str, ...] = ()
    occupied: tuple[str, ...] = ()
    real: Mapping[str, RealSteps] = field(default_factory=dict)
    predicted: Table | None = None
    this_machine: bool = True

    @cached_property
    def costs(self) -> Mapping[str, Cost]:
        """What the whole takes, by device, with the money and the power that the caller gave."""
        models = [part.model for part in self.parts]
        costs: dict[str, Cost] = {}
        for device in self.parts[0].predictions:
            steps = [(part.count, part.predictions[device]) for part in self.parts]
            cost = total(steps, models=models, repeats=self.repeats)
            dollars, watts = self.objective.dollars_per_hour(cost), self.objective.watts_of(cost)
            costs[device] = replace(cost, dollars_per_hour=dollars, watts=watts)
        return costs

    def alone(self, part: PricedPart) -> Table:
        """The table of one part, as of a long run of its steps."""
        return replace(self, parts=(replace(part, count=1),), facts=part.facts, repeats=None, unit=STEP, predicted=None)

    def asked_alone(self) -> Table | None:
        """The same without GPUs that nobody asked about; None where only these can run it."""
        if not self.beside:
            return self
        parts = [
            replace(part, predictions={n: p for n, p in part.predictions.items() if n not in self.beside})
            for part in self.parts
        ]
        predicted = None if self.predicted is None else self.predicted.asked_alone()
        alone = replace(self, parts=tuple(parts), beside=frozenset(), predicted=predicted)
        return alone if parts[0].predictions else None

    def repeated(self, repeats: int) -> Table:
        """The same step or job, ``repeats`` times; nothing is priced again."""
        return replace(self, repeats=repeats, facts={**self.facts, "steps": repeats})

    def decide(self) -> Decision:
        """The device that is the best for the whole, and why.

        By time it is one that the caller has or asked about: GPUs that stand ``beside`` these are only told of.
        """
        decision = decide(self.costs, self.repeats, self.objective, self.unit)
        reason = decision.reason
        asked = {device: cost for device, cost in self.costs.items() if device not in self.beside}
        if asked and self.beside and self.objective.name == "time":
            among_asked = decide(asked, self.repeats, self.objective, self.unit)
            decision = replace(among_asked, break_even_steps=decision.break_even_steps)
            reason = decision.reason
        further = _threads_reason(decision.threads, self.thread_options) if decision.device == "cpu" else ""
        further += f" ({'; '.join(self._real_steps())})" if self.real else ""
        if decision.speedup is None and self.beside and asked and asked[decision.device].fits:
            reason = self._reason_beside(decision.device, further)  # "no other device" is not the whole of it
        else:
            reason += further
        reason = "; ".join((reason, *self.left_out, *self.occupied))
        return replace(decision, thread_options=self.thread_options, reason=reason)

    def _real_steps(self) -> Iterator[str]:
        """What real steps the times rest on, and on which devices."""
        devices: dict[RealSteps, list[str]] = {}
        for device, steps in sorted(self.real.items()):
            devices.setdefault(steps, []).append(device)
        for steps, names in devices.items():
            yield f"{'' if steps.same_step else 'from '}{steps.said} on {' and '.join(names)}"

    def _reason_beside(self, device: str, further: str) -> str:
        """The time on the only device there is, what is said ``further`` of it, and the best of the GPUs beside it."""
        fitting = [name for name in self.costs if name in self.beside and self.costs[name].fits]
        takes = f"{self.unit.one} takes {format_seconds(self.costs[device].step_seconds)}"
        reason = f"{device} is the only device {'here' if self.this_machine else 'there'}: {takes}{further}"
        if not fitting:
            return reason
        best = min(fitting, key=lambda name: counted_seconds(self.costs[name], self.repeats))
        return f"{reason}, and would take {format_seconds(self.costs[best].step_seconds)} on {best}"


def _threads_reason(chosen: int, tried: tuple[ThreadOption, ...]) -> str:
    """Half a sentence on the number of threads; empty where only one was compared."""
    if len(tried) < 2:
        return ""
    steps = {option.threads: option.step_seconds for option in tried}
    now = next((option.threads for option in tried if option.current), None)
    with_threads = f", with {format_count(chosen, 'thread')}"
    if now is not None and chosen != now:
        return f"{with_threads}: with {now} a step would take {format_seconds(steps[now])}"
    if steps[chosen] > min(steps.values()):
        return f"{with_threads} as now: no other number is much faster"
    *first, last = map(str, sorted(steps))
    return f"{with_threads}: the best of {', '.join(first)} and {last}"


def total(
    parts: Sequence[tuple[float, Prediction]], *, models: Sequence[Hashable] = (), repeats: int | None = None
) -> Cost:
    """The sum of ``parts`` on one device, pairs of how often a step runs and the step.

    Errors of the parts are taken to go the same way, which gives the widest interval: the ends of the 90 % intervals
    are added up. ``models`` tells which parts share their weights (those of equal entries; none given: all do). Parts
    share the context and the libraries, and those of one model its weights and its memory: the largest counts. Memory
    and weights of several models are added up. The whole is bounded by what bounds its longest part, and draws the mean
    power of its parts. ``repeats`` is how often the whole runs.
    """
    _, first = parts[0]
    _, longest = max(parts, key=lambda part: part[0] * part[1].step_seconds)
    components: dict[str, float] = {}
    for count, step in parts:
        for name, seconds in step.components.items():
            components[name] = components.get(name, 0.0) + count * seconds
    model_of = list(models) or [None] * len(parts)
    needed, weights, shared = dict.fromkeys(model_of, 0), dict.fromkeys(model_of, 0.0), dict[str, float]()
    for model, (_, step) in zip(model_of, parts, strict=True):
        needed[model] = max(needed[model], step.peak_memory_bytes)
        weights[model] = max(weights[model], step.one_time.get("weights", 0.0))
        for name, seconds in step.one_time.items():
            shared[name] = max(shared.get(name, 0.0), seconds)
    if any(weights.values()):
        shared["weights"] = sum(weights.values())
    if "compilation" in shared:  # each part is a graph of its own
        shared["compilation"] = sum(step.one_time.get("compilation", 0.0) for _, step in parts)
    available = [step.available_memory_bytes for _, step in parts if step.available_memory_bytes is not None]
    room = max(available, default=None)
    seconds = sum(count * step.step_seconds for count, step in parts)
    covered = sum(count * step.step_seconds * step.coverage for count, step in parts)
    sources: dict[str, float] = {}
    for count, step in parts:
        for source, share in step.sources.items():
            sources[source] = sources.get(source, 0.0) + count * step.step_seconds * share / seconds
    joules = [count * step.step_seconds * step.watts for count, step in parts if step.watts is not None]
    cost = Cost(
        device=first.device,
        threads=first.threads,
        step_seconds=seconds,
        low=sum(count * step.low for count, step in parts),
        high=sum(count * step.high for count, step in parts),
        one_time_seconds=sum(shared.values()),
        total_seconds=None,
        components=components,
        peak_memory_bytes=sum(needed.values()),
        available_memory_bytes=room,
        fits=all(step.fits for _, step in parts) and (room is None or sum(needed.values()) <= room),
        coverage=covered / seconds if seconds else 1.0,
        sources=sources,
        assumed=tuple(sorted({name for _, step in parts for name in step.assumed})),
        provenance=weakest(step.provenance for _, step in parts),
        one_time=shared,
        bounded_by=longest.bounded_by,
        watts=sum(joules) / seconds if seconds and len(joules) == len(parts) else None,
    )
    return cost if repeats is None else replace(cost, total_seconds=counted_seconds(cost, repeats))
