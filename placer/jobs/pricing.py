"""A job, priced: a plan for each part, their totals by device, and the fastest ways to run them together and apart."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from torch import nn

from placer.decision import LEAST_GAIN, Decision, Plan, Total, Unit, decide, probability_faster, total
from placer.errors import PlacerError, TraceError
from placer.jobs.apart import Apart, Step, best_apart
from placer.lazy import cached_property
from placer.units import format_seconds
from placer.workload import Job, Part

#: What a step is called where it is a whole job.
_JOB = Unit("the job", "a job", "repeat")


@dataclass(frozen=True)
class PricedJob:
    """A job and the plan of each of its parts, all of them priced on the same devices."""

    job: Job
    plans: tuple[Plan, ...]

    @cached_property
    def devices(self) -> tuple[str, ...]:
        """The devices that every part was priced on."""
        first, *others = (plan.predictions for plan in self.plans)
        return tuple(name for name in first if all(name in other for other in others))

    @cached_property
    def totals(self) -> Mapping[str, Total]:
        """The whole job on each device."""
        threads = {name: self.plans[0].predictions[name].threads for name in self.devices}
        return {
            name: total(
                name,
                threads[name],
                [(part.count, plan.predictions[name]) for part, plan in self.rows],
                models=self.models,
                repeats=self.job.repeats,
            )
            for name in self.devices
        }

    @cached_property
    def decision(self) -> Decision:
        """The one device for all parts."""
        return decide(self.totals, self.job.repeats, self.plans[0].objective, _JOB)

    @property
    def rows(self) -> list[tuple[Part, Plan]]:
        return list(zip(self.job.parts, self.plans, strict=True))

    @cached_property
    def models(self) -> tuple[int, ...]:
        """A number for each part, equal for those that share a parameter or a buffer."""
        return shared_models(self.job.parts)

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        return tuple(
            Step(part.name, part.count, plan.predictions, model, isinstance(part.workload.target, nn.Module))
            for (part, plan), model in zip(self.rows, self.models, strict=True)
        )

    def apart(self, *, placeable: bool = False) -> Apart | None:
        """The best way to share the parts out, where that saves at least ``LEAST_GAIN`` over the best single device.

        Or where the job fits on no single device. None where time is not the objective: a machine with both devices is
        paid for either way.
        """
        if self.plans[0].objective.name != "time":
            return None
        best = best_apart(self.steps, self.job.repeats, placeable=placeable)
        if best is None:
            return None
        together = self.totals[self.decision.device]
        whole = together.step_seconds if together.total_seconds is None else together.total_seconds
        pays = best.seconds(self.job.repeats) <= (1.0 - LEAST_GAIN) * whole
        return best if pays or not together.fits else None


def priced(job: Job, plan_of: Callable[[Part], Plan]) -> PricedJob:
    """``job`` with what ``plan_of`` makes of each part. Raises PlacerError where a part cannot be priced."""
    plans = []
    for part in job.parts:
        try:
            plans.append(plan_of(part))
        except TraceError as error:
            raise TraceError(f"part {part.name!r}: {error}") from error
    found = PricedJob(job, tuple(plans))
    if not found.devices:
        raise PlacerError("no device can run all parts of the job")
    return found


def shared_models(parts: Sequence[Part]) -> tuple[int, ...]:
    """A number for each part, equal for those that share a parameter or a buffer, directly or by way of others."""
    held = [
        {id(tensor) for module in part.workload.modules for tensor in (*module.parameters(), *module.buffers())}
        for part in parts
    ]
    groups = list(range(len(parts)))
    for later, own in enumerate(held):
        for earlier in range(later):
            if own & held[earlier] and groups[earlier] != groups[later]:
                kept, gone = groups[earlier], groups[later]
                groups = [kept if group == gone else group for group in groups]
    return tuple(groups)


def apart_decision(found: PricedJob, apart: Apart) -> Decision:
    """The decision to run the parts of a job apart, on the device of the longest part."""
    seconds = {step.name: step.count * step.predictions[apart.devices[step.name]].step_seconds for step in found.steps}
    longest = apart.devices[max(seconds, key=lambda name: seconds[name])]
    together, repeats = found.totals[found.decision.device], found.job.repeats
    whole = together.step_seconds if together.total_seconds is None else together.total_seconds
    shared = replace(
        together, step_seconds=apart.step_seconds, low=apart.low, high=apart.high,
        one_time_seconds=apart.one_time_seconds,
    )  # fmt: skip
    shares = ", ".join(f"{name} on {device}" for name, device in apart.devices.items())
    return replace(
        found.decision,
        device=longest,
        confidence=probability_faster(shared, together, repeats),
        speedup=whole / apart.seconds(repeats) if apart.seconds(repeats) else None,
        reason=f"{longest}: parts apart ({shares}) take {format_seconds(apart.step_seconds)}, and all on "
        f"{together.device} {format_seconds(together.step_seconds)}",
    )
