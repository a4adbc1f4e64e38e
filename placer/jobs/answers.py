"""``choose`` and ``explain`` for a job: the same pipelines as for a step, run for each part."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from placer import decision as deciding
from placer.answer import Mover, Placement, placement_of, record
from placer.decision import Advice, Asked, Decision, Plan, Request, ranks
from placer.errors import PlacerError, PlacerWarning
from placer.explanation import Explanation
from placer.jobs.apart import Apart
from placer.jobs.explaining import explained
from placer.jobs.placement import JobPlacement
from placer.jobs.pricing import PricedJob, apart_decision, priced
from placer.placement import relocate_or_stay
from placer.workload import Job, Part, check_choice, check_devices, override, strict

#: Advice on parts below this share of the job's time is not asked for.
_LEAST_SHARE = 0.2


def explain_job(
    job: Job, given: Sequence[Any], data: str, devices: Any, threads: str, profile: Any, what_if: Any,
    *, advice: bool = True,
) -> Explanation:  # fmt: skip
    """What ``choose_job`` would say and why; nothing is moved.

    ``given`` and ``data`` are the arguments of ``placer.explain`` that only a single step may have.
    """
    _check(given, data, threads)
    asked = deciding.asked(check_devices(devices), "keep", profile, what_if)
    found = priced(job, partial(_plan, asked))
    apart = found.apart()
    decision = apart_decision(found, apart) if job.apart and apart is not None else None
    return explained(found, decision, apart, tuple(_advice(found, asked)) if advice else ())


def choose_job(
    job: Job, given: Sequence[Any], data: str, devices: Any, threads: str, measure: str, profile: Any, move: bool
) -> JobPlacement:
    """Predict where the job finishes first, and move the models and optimizer states of its parts there in place.

    Where the job allows it and it saves time, parts go to different devices. Falls back, warns and raises as
    ``placer.choose`` does; ``given`` and ``data`` are as for ``explain_job``.
    """
    _check(given, data, threads)
    if measure != "never":
        raise ValueError(f"measure must be 'never' for a job, not {measure!r}: its steps are not timed before they run")
    whole = replace(job.parts[0].workload, modules=job.modules, steps=job.repeats)
    request = deciding.check(whole, devices, threads, measure, profile)
    mover = Mover(request, job.optimizers, move)
    forced = override()
    if forced is not None:
        return JobPlacement(job, mover.forced(forced).decision)
    try:
        started = time.perf_counter()
        found = priced(job, lambda part: deciding.plan_for(replace(request, workload=part.workload))[0])
        apart = found.apart(placeable=True) if job.apart else None
        decision = found.decision if apart is None else apart_decision(found, apart)
        explain = partial(explained, found, None, found.apart())
        if apart is not None:
            explain = partial(explained, found, decision, apart)
        record(explain, time.perf_counter() - started)
    except PlacerError as error:
        if strict():
            raise
        return JobPlacement(job, mover.by_convention(error).decision)
    deciding.say_estimated(found.plans[0].profile)
    agreed = ranks.agreed(decision, found.totals, whole, tuned=False)
    if agreed.device != decision.device:
        apart = None
    devices_of = apart.devices if apart else dict.fromkeys((part.name for part in job.parts), agreed.device)
    parts = {part.name: _part(part, plan, agreed, devices_of[part.name]) for part, plan in found.rows}
    answer = JobPlacement(job, agreed, found.totals, parts=parts, apart=apart, explain=explain)
    return _placed(answer, found, request, apart) if move else answer


def _check(given: Sequence[Any], data: str, threads: str) -> None:
    """A job says what to run: the arguments that say so of a single step are refused. Raises ValueError."""
    if any(value is not None for value in given) or data != "host":
        raise ValueError("a Job says what to run: give batch_shape, mode, optimizer, steps and the like to its parts")
    check_choice("threads", threads, ("keep",))


def _plan(asked: Asked, part: Part) -> Plan:
    plan = deciding.make_plan(part.workload, asked.comparison(part.workload))
    return deciding.with_seen(deciding.with_occupied(plan), None) if asked.own else plan


def _advice(found: PricedJob, asked: Asked) -> Iterable[Advice]:
    """What would make the longest parts faster on the chosen device; gains are shares of the whole job."""
    device = found.decision.device
    whole = found.totals[device].step_seconds
    for part, plan in found.rows:
        share = part.count * plan.predictions[device].step_seconds / whole if whole else 0.0
        if share < _LEAST_SHARE:
            continue
        for row in deciding.advise(part.workload, plan, asked.comparison(part.workload)):
            if row.device == device == plan.decision.device and share * row.gain >= deciding.LEAST_GAIN:
                yield replace(row, change=f"{part.name}: {row.change}", gain=share * row.gain, tips=False)


def _part(part: Part, plan: Plan, decision: Decision, device: str) -> Placement:
    """The answer for a part that runs on ``device``."""
    own = plan.decision
    if own.device != device:
        own = Decision(device, own.threads, decision.confidence, f"{device}: with the job ({decision.reason})")
    return placement_of(plan, own, part.workload.data)


def _placed(answer: JobPlacement, found: PricedJob, request: Request, apart: Apart | None) -> JobPlacement:
    """The answer after the move; another, with a PlacerWarning, where the device refused it."""
    if apart is not None:
        answer.place_apart(found, apart)
        return answer
    refused = relocate_or_stay(request.workload, found.job.optimizers, answer.device, allowed=request.devices)
    if refused is None:
        return answer
    warnings.warn(PlacerWarning(f"not placed as predicted: {refused.reason}"), stacklevel=4)
    return JobPlacement(found.job, Decision(refused.home, torch.get_num_threads(), None, refused.reason), found.totals)
