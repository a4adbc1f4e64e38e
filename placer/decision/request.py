"""A checked request of ``choose``, and what was decided before for one like it.

A request that repeats another costs a look-up. Asked in the same words of the same, unchanged model object, it is not
even checked again.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from typing import Any, TypeAlias

import torch
from torch import nn

from placer import machine
from placer import profile as profiles
from placer.decision import convention, planning, present, ranks, real_times, residence, settings
from placer.decision.comparison import Comparison, compare
from placer.decision.objective import Objective, check_known, objective_of
from placer.decision.plan import Plan
from placer.decision.plan_cache import plans
from placer.errors import PlacerError, ProfileMissing
from placer.profile import Profile
from placer.workload import (
    MEASURE,
    THREADS,
    Workload,
    callable_signature,
    check_available,
    check_choice,
    check_devices,
    optimizer_signature,
    override,
    signature,
)


@dataclass(frozen=True)
class Request:
    """The checked arguments of ``choose``, but for those about the move.

    ``named`` are the devices that the caller gave, ``devices`` those to choose from; None: all of this machine.
    ``source`` is what names the profile.
    """

    workload: Workload
    named: tuple[str, ...] | None
    devices: tuple[str, ...] | None
    threads: str
    measure: str
    source: Profile | str | PathLike[str] | None
    objective: Objective

    @property
    def model(self) -> nn.Module | None:
        """The module whose plans are remembered; None for a step function."""
        return self.workload.target if isinstance(self.workload.target, nn.Module) else None

    @cached_property
    def profile(self) -> Profile:
        """Read once, so that the whole request is answered from one. Raises ProfileError."""
        if self.source is not None:
            return profiles.load_cached(self.source)
        return present.profile_as_before() or present.present_profile()

    @property
    def profile_read(self) -> Profile | None:
        """The profile if it could be read so far. Reads nothing."""
        return self.__dict__.get("profile")

    @cached_property
    def question(self) -> Hashable:
        """Equal for requests with one answer, about models that are equal."""
        where = _where(lambda: residence.home(self.workload), self.workload.steps is not None)
        return _question(
            self.workload.signature, self.devices, self.threads, self.measure, self.objective, self.profile, where
        )

    def comparison(self) -> Comparison:
        """The devices to compare. Raises ProfileError, ProfileStale for another machine's ``source``."""
        profile = self.profile
        if self.source is None:
            profile = present.present_profile()
        else:
            profiles.check_fresh(profile)
        names, notes = convention.reachable(self.workload, self.devices)
        return compare(
            profile, devices=names, threads=self.threads, home=residence.home(self.workload), notes=notes,
            objective=self.objective,
        )  # fmt: skip


def check(
    workload: Workload, devices: Any, threads: Any, measure: Any, source: Any, objective: Any = "time",
    price: Any = None, watts: Any = None,
) -> Request:  # fmt: skip
    """The arguments that are not about the workload, checked. Raises ValueError or TypeError."""
    names = check_devices(devices)
    check_choice("threads", threads, THREADS)
    check_choice("measure", measure, MEASURE)
    profiles.check_source(source)
    if measure != "never" and workload.is_step_function:
        raise ValueError("measure needs an nn.Module: a step function cannot be timed without changing what it trains")
    if names is not None:
        check_available(names)
    wanted = objective_of(objective, price, watts)
    candidates = names or ranks.own_devices()
    check_known(wanted, candidates or machine.available_devices())
    return Request(workload, names, candidates, threads, measure, source, wanted)


def look_up(request: Request) -> tuple[Plan | None, bool]:
    """(the plan made before, whether its decision is new since steps were seen); None where nothing says enough.

    That is the plan for this model and question, or one between those for a smaller and a larger input.
    """
    model = request.model
    if model is None:
        return None, False
    plan = plans.get(model, request.question)
    # The identity of a profile is only meaningful while it lives, and the plan keeps its own alive.
    if plan is not None and plan.profile is request.profile:
        if plan.current:
            return plan, False
        seen = real_times.with_seen(plan, request.workload.steps)
        plans.put(model, request.question, seen)
        return seen, seen.decision != plan.decision
    if plan is None and request.measure == "never" and request.threads == "keep":
        return _interpolated(request, model), False
    return None, False


def _interpolated(request: Request, model: nn.Module) -> Plan | None:
    """A plan made of those for a smaller and a larger input of the same model; None where that would say too little."""
    found = plans.between(model, request.question)
    if found is None:
        return None
    plan = planning.interpolated(*found, request.workload)
    if plan is not None:
        plans.put(model, request.question, plan)
    return plan


def remember(request: Request, plan: Plan) -> None:
    """Keep a new plan for requests to come."""
    if request.model is not None:
        plans.put(request.model, request.question, plan)


#: What the words of a request mean: the workload's signature, the devices, whether the run is short, what is wanted.
_Meaning: TypeAlias = tuple[Hashable, tuple[str, ...] | None, bool, Objective]


def understood(request: Request, words: Hashable) -> None:
    """Keep what the ``words`` of a request mean, for as long as its model is what it was."""
    if request.model is not None:
        workload = request.workload
        meaning = (workload.signature, request.named, workload.steps is not None, request.objective)
        plans.understood(request.model, words, meaning)


def answered_before(
    model: nn.Module, words: Hashable, threads: str, measure: str, source: Profile | str | PathLike[str] | None
) -> Plan | None:
    """The plan for a question asked before in the same words, if all it depends on is what it was; else None.

    None too where the answer has to be agreed upon with other ranks, or threads have to be set.
    """
    if threads == "tune" or override() is not None or ranks.distributed():
        return None

    def question(meaning: _Meaning) -> Hashable:
        signed, named, short, objective = meaning
        where = _where(lambda: residence.device_name(plans.device_of(model)), short)
        profile = present.profile_as_before() if source is None else profiles.load_cached(source)
        if profile is None:
            raise ProfileMissing("this machine's profile was not looked at yet")
        return _question(signed, named, threads, measure, objective, profile, where)

    try:
        found = plans.again(model, words, question)
    except PlacerError:
        return None
    if found is None or not found[0].current:
        return None
    plan, (_, named, *_) = found
    if named is not None:
        check_available(named)
    return plan


def _where(home: Callable[[], str], short: bool) -> Hashable:
    """What counts of where a model is (``home``); None where it makes no difference.

    Of equal devices it stays on its own. In a ``short`` run its move counts, and what a device has started already.
    """
    accelerators = machine.accelerators()
    if short:
        return home(), tuple(map(machine.has_context, accelerators))
    found = home() if len(accelerators) > 1 else "cpu"
    return found if machine.split_device(found)[1] else None


def _question(
    signed: Hashable, names: Sequence[str] | None, threads: str, measure: str, objective: Objective, profile: Profile,
    where: Hashable,
) -> Hashable:  # fmt: skip
    """``signed`` is the workload's signature; the process-wide switches a prediction depends on are in it too.

    ``where`` is what ``_where`` says.
    """
    return (signed, names, threads, measure, objective, id(profile), settings.switches(), where)


def words(
    batch_shape: Any,
    example: Any,
    mode: Any,
    loss: Any,
    optimizer: Any,
    steps: Any,
    data: Any,
    autocast: Any,
    devices: Any,
    threads: Any,
    measure: Any,
    objective: Any = "time",
    price: Any = None,
    watts: Any = None,
) -> Hashable | None:
    """Equal for arguments of ``choose`` that mean the same for one model in one state; None where one is wrong.

    What it holds need not have a hash: whoever keeps it finds out.
    Types count where Python calls values of different types equal: ``steps=True`` is refused, ``steps=1`` is not.
    """
    if not (optimizer is None or isinstance(optimizer, (str, torch.optim.Optimizer))):
        return None
    return (
        signature(batch_shape), signature(example), mode, callable_signature(loss), optimizer_signature(optimizer),
        type(steps), steps, data, type(autocast), autocast, signature(devices), threads, measure,
        objective, *(tuple(given.items()) if isinstance(given, dict) else given for given in (price, watts)),
    )  # fmt: skip
