"""A question that nobody wants anything moved for: what a step or a job takes where, and why, as an Explanation."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeAlias

from placer import decision as deciding
from placer import machine
from placer.answer import explanation_of
from placer.decision import Candidates, Objective, Table, Traced
from placer.explanation import Explanation, Measured, find_turn, headline
from placer.profile import Profile, changed_fields, check_source
from placer.tracing import Trace
from placer.workload import Job, Workload, check_available

#: What names a profile.
Source: TypeAlias = "Profile | str | os.PathLike[str]"
#: GPUs that a machine without an accelerator is compared with, unless other ones are named: a cheap one of a cloud, one
#: of a desktop, and a fast one.
USUAL_GPUS = ("T4", "RTX 4090", "H100")


def explain_workload(
    what: Workload | Job,
    names: Sequence[str] | None = None,
    threads: str = "keep",
    profile: Source | Sequence[Source] | None = None,
    what_if: Source | Sequence[Source] | None = None,
    objective: Objective = deciding.TIME,
    *,
    advice: bool = True,
    measure: bool = False,
    trace: Trace | None = None,
) -> Explanation:
    """``placer.explain`` of arguments that were checked. Without ``advice`` only the step or the job itself is priced.

    ``measure`` times the real step on the devices of this machine. ``trace`` is that of a workload, where there is one.
    """
    named = _sources(profile)
    here = not named
    if here and names is not None:
        check_available(names)
    for source in (*named, *_sources(what_if)):
        check_source(source)
    with deciding.only_placer_errors():
        used = deciding.profile_named(named[0]) if named else deciding.current_profile()
        host = used if "cpu" in used.devices() else None
        others = [deciding.profile_named(source, host) for source in _sources(what_if)]
        beside = [deciding.profile_named(source, host) for source in named[1:]]
        own = deciding.gather(
            used, names, here=here, modules=what.modules, threads=threads, what_if=others, beside=beside
        )
        if trace is not None and isinstance(what, Workload):
            traced = deciding.traced_step(what, trace)
        else:
            traced = deciding.trace_parts(what)
        # Dollars per hour are asked of every device: nobody gave those of GPUs that he did not name.
        open_ended = what_if is None and names is None and not beside and objective.name != "cost"
        beyond = open_ended and all(deciding.is_cpu(each.name) for each in own.each) and not own.left_out
        obstacle = traced.obstacles.on("cuda", here=False)
        candidates = own
        if beyond and obstacle is None:
            usual = [deciding.profile_named(gpu, host) for gpu in USUAL_GPUS]
            candidates = deciding.gather(used, None, here=here, modules=what.modules, threads=threads, what_if=usual)
        elif beyond:
            candidates = own = replace(own, notes=(*own.notes, f"no GPU is compared: {obstacle}"))
        predicted = deciding.compare(traced, candidates, objective)
        table = predicted
        if here:
            table = deciding.with_occupied(table)
        if here and not measure:  # what is measured now stands beside what is predicted
            table = deciding.with_seen(table)
        found = _explained(what, traced, predicted, table, own, candidates, advice=advice)
        turn = find_turn(what, traced, predicted, candidates) if advice else None
    # Steps that are timed make errors of their own.
    measured = _measured(what, predicted) if measure and isinstance(what, Workload) else {}
    this = here or not changed_fields(used)
    found = replace(found, turn=turn, measured=measured, machine={**found.machine, "here": this})
    if candidates is not own and found.decision.speedup is None:  # "there is no other device" is not the whole of it
        found = replace(found, decision=replace(found.decision, reason=headline(found)))
    return found


def _explained(
    what: Workload | Job, traced: Traced, predicted: Table, table: Table, own: Candidates, candidates: Candidates, *,
    advice: bool,
) -> Explanation:  # fmt: skip
    """The explanation of a table.

    GPUs that nobody named stand beside the devices of the user, ``own``: the choice by time is among these, and so is
    what could be changed. Without ``advice``, as in a row of a sweep, and where none of the user's can run it, all are
    compared.
    """
    decision = table.decide()
    if candidates is own:
        apart = deciding.worth_it(table, decision) if isinstance(what, Job) and what.apart else None
        changes = deciding.advise(traced, predicted, decision, own) if advice else ()
        return explanation_of(table, decision, apart, changes)
    usable = any(each.name in table.costs for each in own.each)
    if not advice or not usable:
        return replace(explanation_of(table, decision), apart=None)
    alone = deciding.compare(traced, own, predicted.objective)
    changes = deciding.advise(traced, alone, alone.decide(), own)
    if predicted.objective.name == "time":
        decision = replace(alone.decide(), break_even_steps=decision.break_even_steps)
    return replace(explanation_of(table, decision), advice=changes, apart=None)


def _sources(given: Source | Sequence[Source] | None) -> list[Source]:
    """What an argument names that takes one source or several; none for None."""
    if given is None or isinstance(given, (list, tuple)):
        return list(given or ())
    return [given]  # type: ignore[list-item]  # a sequence is a list or a tuple


def check_measurable(what: Workload | Job, profile: Source | Sequence[Source] | None) -> None:
    """Raise ValueError where real steps cannot be timed on this machine, or would say nothing of what is predicted."""
    if isinstance(what, Job) or what.is_step_function:
        kind = "a Job" if isinstance(what, Job) else "a step function"
        raise ValueError(f"measure needs an nn.Module: {kind} cannot be timed without changing what it trains")
    for source in _sources(profile):
        if changed := changed_fields(deciding.profile_named(source)):
            raise ValueError(
                f"measure times steps on this machine, and the profile is of another one ({'; '.join(changed)}); leave "
                "profile out"
            )


def _measured(what: Workload, table: Table) -> dict[str, Measured]:
    """Real steps on the devices of the table that are on this machine, and how far predictions are off."""
    here = machine.available_devices()
    (part,) = table.parts
    timed = deciding.time_steps(what, {n: p for n, p in part.predictions.items() if n in here and p.fits})
    predicted = {name: table.costs[name].step_seconds for name in timed}
    return {name: Measured(*seen, off=predicted[name] / seen.step_seconds - 1.0) for name, seen in timed.items()}
