"""The Table that every answer is read from: what a step or a job takes on each device, and the decision it leads to."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any

from placer.decision.decision import Decision, ThreadOption, decide
from placer.decision.objective import STEP, TIME, Objective, Unit
from placer.decision.steps import StepIdentity
from placer.lazy import cached_property
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
            whole = total([(part.count, part.predictions[device]) for part in self.parts], models=models)
            costs[device] = self.objective.applied(whole, self.repeats)
        return costs

    @property
    def fits(self) -> bool:
        """Whether any device has room for it."""
        return any(cost.fits for cost in self.costs.values())

    def alone(self, part: PricedPart) -> Table:
        """The table of one part, as of a long run of its steps."""
        return replace(self, parts=(replace(part, count=1),), facts=part.facts, repeats=None, unit=STEP, predicted=None)

    def repeated(self, repeats: int) -> Table:
        """The same step or job, ``repeats`` times; nothing is priced again."""
        return replace(self, repeats=repeats, facts={**self.facts, "steps": repeats})

    def decide(self) -> Decision:
        """The device that is the best for the whole, and why.

        By time it is one that the caller has or asked about: GPUs that stand ``beside`` these are only told of.
        """
        decision = decide(self.costs, self.repeats, self.objective, self.unit)
        asked = {device: cost for device, cost in self.costs.items() if device not in self.beside}
        told_of = bool(asked and self.beside) and self.objective.name == "time"
        if told_of:
            break_even = decision.break_even_steps
            decision = replace(decide(asked, self.repeats, self.objective, self.unit), break_even_steps=break_even)
        further = _threads_reason(decision.threads, self.thread_options) if decision.device == "cpu" else ""
        further += self._real_steps()
        if told_of and decision.speedup is None and asked[decision.device].fits:
            reason = self._reason_beside(decision.device, further)  # "no other device" is not the whole of it
        else:
            reason = decision.reason + further
        reason = "; ".join((reason, *self.left_out, *self.occupied))
        return replace(decision, thread_options=self.thread_options, reason=reason)

    def _real_steps(self) -> str:
        """What real steps the times rest on, and on which devices, in brackets; "" for none."""
        devices: dict[RealSteps, list[str]] = {}
        for device, steps in sorted(self.real.items()):
            devices.setdefault(steps, []).append(device)
        words = [
            f"{'' if steps.same_step else 'from '}{steps.said} on {' and '.join(names)}"
            for steps, names in devices.items()
        ]
        return f" ({'; '.join(words)})" if words else ""

    def _reason_beside(self, device: str, further: str) -> str:
        """The time on the only device there is, what is said ``further`` of it, and the best of the GPUs beside it."""
        takes = f"{self.unit.one} takes {format_seconds(self.costs[device].step_seconds)}"
        reason = f"{device} is the only device {'here' if self.this_machine else 'there'}: {takes}{further}"
        fitting = [cost for name, cost in self.costs.items() if name in self.beside and cost.fits]
        if not fitting:
            return reason
        best = min(fitting, key=attrgetter("seconds"))
        return f"{reason}, and would take {format_seconds(best.step_seconds)} on {best.device}"


def _threads_reason(chosen: int, tried: tuple[ThreadOption, ...]) -> str:
    """Half a sentence on the number of threads; empty where only one was compared."""
    now = next((option for option in tried if option.current), None)
    if len(tried) < 2 or now is None:
        return ""
    with_threads = f", with {format_count(chosen, 'thread')}"
    if chosen == now.threads:
        return f"{with_threads} as now: no other number is much faster"
    return f"{with_threads}: with {now.threads} a step would take {format_seconds(now.step_seconds)}"


def total(parts: Sequence[tuple[float, Prediction]], *, models: Sequence[Hashable] = ()) -> Cost:
    """The sum of ``parts`` on one device, pairs of how often a step runs and the step.

    Errors of the parts are taken to go the same way, which gives the widest interval: the ends of the 90 % intervals
    are added up. ``models`` tells which parts share their weights (those of equal entries; none given: all do). Parts
    share the context and the libraries, and those of one model its weights and its memory: the largest counts. Memory
    and weights of several models are added up, and so is what each part takes to compile. The whole is bounded by what
    bounds its longest part, and draws the mean power of its parts.
    """
    steps = [step for _, step in parts]
    seconds = [count * step.step_seconds for count, step in parts]
    whole = sum(seconds)
    components: dict[str, float] = {}
    sources: dict[str, float] = {}
    for (count, step), of_part in zip(parts, seconds, strict=True):
        for name, component in step.components.items():
            components[name] = components.get(name, 0.0) + count * component
        for source, share in step.sources.items():
            sources[source] = sources.get(source, 0.0) + share * of_part / whole
    memory: dict[Hashable, int] = {}
    weights: dict[Hashable, float] = {}
    once: dict[str, float] = {}
    for model, step in zip(models or [None] * len(steps), steps, strict=True):
        memory[model] = max(memory.get(model, 0), step.peak_memory_bytes)
        weights[model] = max(weights.get(model, 0.0), step.one_time.get("weights", 0.0))
        for name, paid in step.one_time.items():
            once[name] = max(once.get(name, 0.0), paid)
    if "weights" in once:
        once["weights"] = sum(weights.values())
    if "compilation" in once:
        once["compilation"] = sum(step.one_time.get("compilation", 0.0) for step in steps)
    needed = sum(memory.values())
    room = max((step.available_memory_bytes for step in steps if step.available_memory_bytes is not None), default=None)
    joules = [of_part * step.watts for of_part, step in zip(seconds, steps, strict=True) if step.watts is not None]
    covered = sum(of_part * step.coverage for of_part, step in zip(seconds, steps, strict=True))
    return Cost(
        device=steps[0].device,
        threads=steps[0].threads,
        step_seconds=whole,
        low=sum(count * step.low for count, step in parts),
        high=sum(count * step.high for count, step in parts),
        one_time_seconds=sum(once.values()),
        total_seconds=None,
        components=components,
        peak_memory_bytes=needed,
        available_memory_bytes=room,
        fits=all(step.fits for step in steps) and (room is None or needed <= room),
        coverage=covered / whole if whole else 1.0,
        sources=sources,
        assumed=tuple(sorted({name for step in steps for name in step.assumed})),
        provenance=weakest(step.provenance for step in steps),
        one_time=once,
        bounded_by=steps[seconds.index(max(seconds))].bounded_by,
        watts=sum(joules) / whole if whole and len(joules) == len(parts) else None,
    )
