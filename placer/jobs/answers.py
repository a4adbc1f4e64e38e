"""``choose`` and ``explain`` for a job: the same pipelines as for a step, run for each part."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

import torch

from placer import decision as deciding
from placer.answer import Mover, Placement, placement_of, record
from placer.decision import TIME, Advice, Asked, Decision, Objective, Plan, Request, ranks
from placer.errors import PlacerError, PlacerWarning
from placer.explanation import Explanation
from placer.jobs.apart import Apart
from placer.jobs.explaining import explained
from placer.jobs.placement import JobPlacement
from placer.jobs.pricing import PricedJob, apart_decision, priced
from placer.placement import move_or_stay, relocate_or_stay
from placer.workload import Job, Part, Workload, check_choice, check_devices, override, strict

#: Workloads with their plans, by the identity of the workload, which lives as long as it is kept here.
Plans: TypeAlias = dict[int, tuple[Workload, Plan]]
#: Advice on parts below this share of the job's time is not asked for.
_LEAST_SHARE = 0.2


def check_arguments(given: Iterable[Any], data: str, threads: str) -> None:
    """Refuse what says what a single step is: a job says that itself. Raises ValueError."""
    if any(value is not None for value in given) or data != "host":
        raise ValueError("a Job says what to run: give batch_shape, mode, optimizer, steps and the like to its parts")
    check_choice("threads", threads, ("keep",))


def explain_job(
    job: Job, devices: Any = None, profile: Any = None, what_if: Any = None, objective: Objective = TIME, *,
    advice: bool = True, plans: Plans | None = None,
) -> Explanation:  # fmt: skip
    """What ``choose_job`` would say and why; nothing is moved.

    ``plans`` keeps what was priced, for jobs that have parts in common.
    """
    asked = deciding.asked(check_devices(devices), "keep", profile, what_if, objective)
    known: Plans = {} if plans is None else plans

    def plan_of(part: Part) -> Plan:
        if id(part.workload) not in known:
            known[id(part.workload)] = part.workload, _plan(asked, part)
        return known[id(part.workload)][1]

    found = priced(job, plan_of)
    apart = found.apart()
    decision = apart_decision(found, apart) if job.apart and apart is not None else None
    return explained(found, decision, apart, tuple(_advice(found, asked)) if advice else ())


def choose_job(
    job: Job, devices: Any, measure: str, profile: Any, move: bool, objective: Any = "time", price: Any = None,
    watts: Any = None,
) -> JobPlacement:  # fmt: skip
    """Predict where the job finishes first, and move the models and optimizer states of its parts there in place.

    Where the job allows it and it saves time, parts go to different devices. Falls back, warns and raises as
    ``placer.choose`` does.
    """
    if measure != "never":
        raise ValueError(f"measure must be 'never' for a job, not {measure!r}: its steps are not timed before they run")
    request = deciding.check(_whole(job), devices, "keep", measure, profile, objective, price, watts)
    mover = Mover(request, job.optimizers, move)
    forced = override()
    if forced is not None:
        return JobPlacement(job, mover.forced(forced).decision)
    try:
        started = time.perf_counter()
        source = request.profile if request.source is not None else None

        def plan_of(part: Part) -> Plan:
            return deciding.plan_for(replace(request, workload=part.workload, source=source))

        found = priced(job, plan_of)
        # Ranks agree on one device, not on one for each part.
        apart = found.apart(placeable=True) if job.apart and not ranks.distributed() else None
        decision = found.decision if apart is None else apart_decision(found, apart)
        explain = partial(_explanation, found, apart)
        record(explain, time.perf_counter() - started)
    except PlacerError as error:
        if strict():
            raise
        return JobPlacement(job, mover.by_convention(error, stacklevel=4).decision)
    deciding.say_estimated(found.plans[0].profile)
    agreed = ranks.agreed(decision, found.totals, request.workload, tuned=False)
    devices_of = apart.devices if apart else dict.fromkeys((part.name for part in job.parts), agreed.device)
    parts = {part.name: _part(part, plan, agreed, devices_of[part.name]) for part, plan in found.rows}
    answer = JobPlacement(job, agreed, found.totals, parts=parts, apart=apart, explain=explain)
    return _placed(answer, found, request) if move else answer


def _whole(job: Job) -> Workload:
    """All models of a job as those of one step, which trains if any does: for what does not depend on the step."""
    trained = next((part for part in job.parts if part.workload.mode == "train"), job.parts[0])
    return replace(trained.workload, modules=job.modules, steps=job.repeats)


def _plan(asked: Asked, part: Part) -> Plan:
    plan = deciding.make_plan(part.workload, asked.comparison(part.workload))
    return deciding.with_seen(deciding.with_occupied(plan), None) if asked.own else plan


def _explanation(found: PricedJob, chosen: Apart | None) -> Explanation:
    """Why the job is placed as it is: on one device, or apart as ``chosen``."""
    if chosen is None:
        return explained(found, None, found.apart())
    return explained(found, apart_decision(found, chosen), chosen)


def _advice(found: PricedJob, asked: Asked) -> Iterable[Advice]:
    """What would make the longest parts faster on the chosen device; gains are shares of the whole job."""
    device = found.decision.device
    whole = found.totals[device].step_seconds
    for part, plan in found.rows:
        share = part.count * plan.predictions[device].step_seconds / whole if whole else 0.0
        if share < _LEAST_SHARE:
            continue
        for row in deciding.advise(part.workload, plan, asked.comparison(part.workload)):
            gain = share * row.gain
            if row.device == device == plan.decision.device and gain >= deciding.LEAST_GAIN:
                kind = "part" if row.kind == "batch" else row.kind  # what it saves is told of the job, not of a row
                yield replace(
                    row, kind=kind, change=f"{part.name}: {row.change}", before=whole, after=(1.0 - gain) * whole,
                    gain=gain, tips=False,
                )  # fmt: skip


def _part(part: Part, plan: Plan, decision: Decision, device: str) -> Placement:
    """The answer for a part that runs on ``device``."""
    own = plan.decision
    if own.device != device:
        own = Decision(device, own.threads, decision.confidence, f"{device}: with the job ({decision.reason})")
    return placement_of(plan, own)


def _placed(answer: JobPlacement, found: PricedJob, request: Request) -> JobPlacement:
    """The answer after the move; another, with a PlacerWarning, where a device refused it."""
    job = found.job
    if answer.apart is not None:
        moving = partial(answer.place_apart, found, answer.apart)
        refused = move_or_stay(moving, job.modules, job.optimizers, answer.device, allowed=request.devices)
    else:
        refused = relocate_or_stay(request.workload, job.optimizers, answer.device, allowed=request.devices)
    if refused is None:
        return answer
    warnings.warn(PlacerWarning(f"not placed as predicted: {refused.reason}"), stacklevel=4)
    decision = Decision(refused.home, torch.get_num_threads(), None, refused.reason)
    parts = {part.name: _part(part, plan, decision, refused.home) for part, plan in found.rows}
    return JobPlacement(job, decision, found.totals, parts=parts, explain=partial(_explanation, found, None))
