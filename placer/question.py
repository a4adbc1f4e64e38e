"""A question as users put it, with profiles by their names, and the explanation that answers it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from placer import machine
from placer.decision import (
    TIME,
    Objective,
    Question,
    Source,
    Table,
    Traced,
    advise,
    answer,
    current_profile,
    gather,
    is_cpu,
    only_placer_errors,
    profile_named,
    time_steps,
    trace_parts,
)
from placer.explanation import Explanation, Measured, find_turn
from placer.profile import changed_fields, check_source
from placer.workload import Job, Workload, check_available

#: GPUs that a machine without an accelerator is compared with, unless other ones are named: a cheap one of a cloud, one
#: of a desktop, and a fast one.
USUAL_GPUS = ("T4", "RTX 4090", "H100")


def ask(
    work: Workload | Job | Traced,
    *,
    devices: Sequence[str] | None = None,
    threads: str = "keep",
    profile: Source | Sequence[Source] | None = None,
    what_if: Source | Sequence[Source] | None = None,
    objective: Objective = TIME,
    recorded: bool = True,
) -> Question:
    """The question of ``placer.explain``, of arguments that were checked.

    With an explicit ``profile`` its devices are compared; with several, side by side. ``recorded``: step times of
    earlier runs on this machine take the place of predicted ones. Raises ValueError for a device that is not here, and
    PlacerError where a profile cannot be used.
    """
    profiles, added = _sources(profile), _sources(what_if)
    here = not profiles
    if here and devices is not None:
        check_available(devices)
    for source in (*profiles, *added):
        check_source(source)
    with only_placer_errors():
        compared = profile_named(profiles[0]) if profiles else current_profile()
        host = compared if "cpu" in compared.devices() else None
        candidates = gather(
            compared,
            devices,
            here=here,
            modules=work.modules,
            threads=threads,
            what_if=[profile_named(source, host) for source in added],
            others=[profile_named(source, host) for source in profiles[1:]],
        )
        # Dollars per hour are asked of every device: nobody gave those of GPUs that he did not name.
        open_ended = what_if is None and devices is None and len(profiles) < 2 and objective.name != "cost"
        only_cpus = all(is_cpu(candidate.name) for candidate in candidates.each)
        if open_ended and only_cpus and not candidates.left_out:
            candidates = candidates.beside([profile_named(gpu, host) for gpu in USUAL_GPUS])
    return Question(work, candidates, objective, recorded=recorded and here)


def explained(question: Question, *, advice: bool = True, measure: bool = False) -> Explanation:
    """The answer to a question, and why. Without ``advice`` only the step or the job itself is priced.

    ``measure`` times the real step on the devices of this machine. Raises PlacerError.
    """
    with only_placer_errors():
        work = question.work
        traced = work if isinstance(work, Traced) else trace_parts(work)
        question = replace(question, work=traced)
        table = answer(question)
        changes = advise(traced, question, table) if advice else ()
        turn = find_turn(traced, question, table) if advice else None
    # Steps that are timed make errors of their own.
    measured = _measured(traced.parts[0].workload, table) if measure else {}
    with only_placer_errors():
        return Explanation.of(table, advice=changes, turn=turn, measured=measured)


def _sources(sources: Source | Sequence[Source] | None) -> list[Source]:
    """What an argument names that takes one source or several; none for None."""
    if sources is None or isinstance(sources, (list, tuple)):
        return list(sources or ())
    return [sources]  # type: ignore[list-item]  # a sequence is a list or a tuple


def check_measurable(work: Workload | Job, profile: Source | Sequence[Source] | None) -> None:
    """Raise ValueError where real steps cannot be timed on this machine, or would say nothing of what is predicted."""
    if isinstance(work, Job) or work.is_step_function:
        kind = "a Job" if isinstance(work, Job) else "a step function"
        raise ValueError(f"measure needs an nn.Module: {kind} cannot be timed without changing what it trains")
    for source in _sources(profile):
        if changed := changed_fields(profile_named(source)):
            raise ValueError(
                f"measure times steps on this machine, and the profile is of another one ({'; '.join(changed)}); leave "
                "profile out"
            )


def _measured(workload: Workload, table: Table) -> dict[str, Measured]:
    """Real steps on the devices of the table that are on this machine, and how far predictions are off."""
    predictions = (table.predicted or table).parts[0].predictions
    here = machine.available_devices()
    timed = time_steps(workload, table, [name for name, p in predictions.items() if name in here and p.fits])
    return {
        name: Measured(time.step_seconds, time.low, time.high, predictions[name].step_seconds / time.step_seconds - 1.0)
        for name, time in timed.items()
    }
