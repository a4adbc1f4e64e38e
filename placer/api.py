"""The public functions: ``choose``, ``explain``, ``calibrate`` and ``load_profile``.

A question runs through one pipeline, whether it is about a step or a job: check the arguments, trace the parts,
compare the candidates, decide. ``choose`` then places the model, once the ranks of a distributed run agree, and
``explain`` says why.
"""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from placer import decision as deciding
from placer import machine
from placer.answer import Placement, PlacementBuilder, explanation_of, record
from placer.collector import without_collection
from placer.decision import Objective, ranks
from placer.errors import PlacerError, ProfileError
from placer.explanation import Explanation, LaterTurn, Measured, find_turn
from placer.profile import Profile, changed_fields, check_source
from placer.workload import (
    MEASURE,
    THREADS,
    Job,
    Workload,
    check_available,
    check_choice,
    check_devices,
    make_workload,
    override,
    strict,
)

#: GPUs that a machine without an accelerator is compared with, unless other ones are named: a cheap one of a cloud, one
#: of a desktop, and a fast one.
USUAL_GPUS = ("T4", "RTX 4090", "H100")
#: What names a profile.
Source = Profile | str | os.PathLike[str]


def choose(
    model: Callable[..., Any] | Job,
    batch_shape: Any = None,
    *,
    example: Any = None,
    mode: str | None = None,
    loss: Callable[..., Any] | None = None,
    optimizer: str | torch.optim.Optimizer | None = None,
    steps: int | None = None,
    data: str = "host",
    outputs: str | None = None,
    autocast: torch.dtype | bool | None = None,
    devices: Iterable[str | torch.device] | str | None = None,
    threads: str = "keep",
    measure: str = "never",
    profile: Profile | str | os.PathLike[str] | None = None,
    move: bool = True,
    modules: nn.Module | Iterable[nn.Module] | None = None,
    objective: str = "time",
    price: Mapping[str, float] | None = None,
    watts: Mapping[str, float] | None = None,
) -> Placement:
    """Predict where the workload finishes first, move the model (and optimizer state) there in place, and say why.

    Or where it costs the least, or takes the least energy: see ``objective``.

    Args:
        model: an ``nn.Module``, or a callable that performs one step on the inputs, with its own loss, backward pass
            and optimizers (then ``modules`` names what to move). It runs once, in a child process.
        batch_shape: one shape, or a sequence of shapes, of float32 inputs.
        example: instead of ``batch_shape``: a tensor or nest of tensors (a tuple: positional, a mapping: by keyword).
        mode: ``"train"`` or ``"infer"``; None reads ``model.training``. A step function that runs backward trains.
        loss: a callable on the output; None: a sum over the floating outputs. Training only.
        optimizer: an instance or a name, ``"adam"`` when None. Training only; an instance's state moves along.
        steps: how many steps will follow; one-time costs are spread over them. None: a long run.
        data: where batches live: ``"host"``, ``"pinned"`` or ``"device"``.
        outputs: where those of an inference go: ``"host"`` or ``"device"``; None: they stay where data stay.
        autocast: None, ``torch.bfloat16``, ``torch.float16``, or True for bfloat16.
        devices: names to choose from; None: all of this machine.
        threads: ``"keep"``, or ``"tune"`` to also choose (and set) the number of CPU threads.
        measure: ``"never"``, ``"unsure"`` (time the real step when the intervals overlap) or ``"always"``.
        profile: None: this machine's; a path, a name or a ``Profile``.
        move: False only answers.
        modules: what a step function moves.
        objective: what to make small: ``"time"``, ``"cost"`` (then ``price`` is needed) or ``"energy"``.
        price: dollars per hour of the machine while the work runs on each device: ``{"cpu": 0.10, "cuda": 2.50}``.
        watts: the power of each device, where you know it; None: an estimate from data sheets.

    Returns:
        A ``Placement``. Without a calibration that holds, it is an estimate from published measurements, and the first
        in a process warns (a ``PlacerWarning``; ``PLACER_QUIET=1`` silences it). Without a trace, or for an accelerator
        of which nothing is known: one ``PlacerWarning`` and the conventional rule (an accelerator if present and the
        model fits), with ``confidence`` None. ``PLACER_STRICT=1`` raises instead of both.

    Raises:
        ValueError, TypeError: a wrong argument.
        PlacerError: only under ``PLACER_STRICT=1``.
    """
    what = checked_work(
        model, batch_shape, threads, example=example, mode=mode, loss=loss, optimizer=optimizer, steps=steps, data=data,
        outputs=outputs, autocast=autocast, modules=modules,
    )  # fmt: skip
    names = check_devices(devices)
    check_choice("threads", threads, THREADS)
    check_choice("measure", measure, MEASURE)
    if names is not None:
        check_available(names)
    forced = override()
    aim = deciding.objective_of(objective, price, watts)
    if profile is not None:
        check_source(profile)
    if aim.name == "cost":
        deciding.check_priced(aim, names or ranks.own_devices() or machine.available_devices())
    timed = what if measure != "never" and isinstance(what, Workload) else None
    if measure != "never" and timed is None:
        raise ValueError(f"measure must be 'never' for a job, not {measure!r}: its steps are not timed before they run")
    if timed is not None and timed.is_step_function:
        raise ValueError("measure needs an nn.Module: a step function cannot be timed without changing what it trains")
    if forced is not None:
        return PlacementBuilder(what, optimizer, names, threads, move).forced(forced)
    used: Profile | None = None
    try:
        # Steps that are timed make garbage, as they will in training.
        with without_collection() if timed is None else nullcontext(), deciding.only_placer_errors():
            started = time.perf_counter()
            traced = deciding.trace_parts(what)
            used = deciding.current_profile(profile)
            names = names or ranks.own_devices()
            candidates = deciding.gather(used, names, here=True, modules=what.modules, threads=threads)
            table = deciding.with_occupied(deciding.compare(traced, candidates, aim))
            if timed is not None:
                table = deciding.with_race(table, timed, measure)
            table = deciding.with_seen(table)
            decision, apart = table.decide(), None
            # Ranks agree on one device, not on one for each part.
            if isinstance(what, Job) and what.apart and not ranks.distributed():
                apart = deciding.worth_it(table, decision, placeable=True)
            seconds = time.perf_counter() - started
        record(table, decision, apart, seconds)
    except PlacerError as error:
        if strict():
            raise
        if used is None and not isinstance(error, ProfileError):  # not traced: the devices can be known all the same
            with suppress(PlacerError), deciding.only_placer_errors():
                used = deciding.current_profile(profile)
        builder = PlacementBuilder(what, optimizer, names or ranks.own_devices(), threads, move)
        return builder.by_convention(error, used)
    deciding.warn_estimated(used)
    later = LaterTurn.of(what, candidates, aim)
    placement = PlacementBuilder(what, optimizer, names, threads, move).place(table, decision, apart)
    placement.show_turn(later)
    return placement


def explain(
    model: Callable[..., Any] | Job,
    batch_shape: Any = None,
    *,
    example: Any = None,
    mode: str | None = None,
    loss: Callable[..., Any] | None = None,
    optimizer: str | torch.optim.Optimizer | None = None,
    steps: int | None = None,
    data: str = "host",
    outputs: str | None = None,
    autocast: torch.dtype | bool | None = None,
    devices: Iterable[str | torch.device] | str | None = None,
    threads: str = "keep",
    profile: Source | Sequence[Source] | None = None,
    modules: nn.Module | Iterable[nn.Module] | None = None,
    what_if: Source | Sequence[Source] | None = None,
    measure: bool = False,
    objective: str = "time",
    price: Mapping[str, float] | None = None,
    watts: Mapping[str, float] | None = None,
) -> Explanation:
    """What ``choose`` would say and why, layer by layer, without moving anything. Arguments as for ``choose``.

    Without a calibration that holds, its ``notes`` say that it is an estimate.

    ``what_if`` adds other accelerators to the comparison, one or several: that of a profile (a path or a name), or a
    GPU or CPU of the catalog (``"RTX 4090"``) beside this machine's host. Where only a CPU would be compared, and no
    ``devices`` are given, these are ``USUAL_GPUS``; ``()`` adds none. With an explicit ``profile`` the devices of that
    profile are compared, whatever this machine has; with several, side by side.

    ``measure`` times real steps on this machine's devices, on copies of the model, for up to ten seconds. They stand
    beside the predictions, under ``measured``. It needs an ``nn.Module``, and predictions that are of this machine.

    A ``price`` is told beside every device also where time is the objective; that of ``cuda@Tesla T4`` may be given as
    ``Tesla T4``.

    Raises:
        ValueError, TypeError: a wrong argument.
        PlacerError: no usable profile (ProfileMissing, ProfileStale, UnknownGPU, ...), no trace of the step
            (TraceError), or the step could not be timed.
    """
    aim = deciding.objective_of(objective, price, watts)
    what = checked_work(
        model, batch_shape, threads, example=example, mode=mode, loss=loss, optimizer=optimizer, steps=steps, data=data,
        outputs=outputs, autocast=autocast, modules=modules,
    )  # fmt: skip
    names = check_devices(devices)
    check_choice("threads", threads, THREADS)
    if measure:
        check_measurable(what, profile)
    return explain_workload(what, names, threads, profile, what_if, aim, measure=measure)


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
) -> Explanation:
    """``explain`` of arguments that were checked. Without ``advice`` only the step or the job itself is priced."""
    given: list[Any] = list(profile) if isinstance(profile, (list, tuple)) and profile else [profile]
    here = given[0] is None
    if here and names is not None:
        check_available(names)
    used = deciding.current_profile() if here else deciding.profile_named(given[0])
    host = used if "cpu" in used.devices() else None
    thought = _sources(what_if)
    others = [deciding.profile_named(source, host) for source in thought or ()]
    beside = [deciding.profile_named(source, host) for source in given[1:]]
    with deciding.only_placer_errors():
        own = deciding.gather(
            used, names, here=here, modules=what.modules, threads=threads, what_if=others, beside=beside
        )
        candidates = own
        # Dollars per hour are asked of every device: nobody gave those of GPUs that he did not name.
        if thought is None and names is None and not beside and objective.name != "cost" and _may_have_gpus(own, what):
            usual = [deciding.profile_named(gpu, host) for gpu in USUAL_GPUS]
            candidates = deciding.gather(used, None, here=here, modules=what.modules, threads=threads, what_if=usual)
        traced = deciding.trace_parts(what)
        predicted = deciding.compare(traced, candidates, objective)
        real = here and not measure  # what is measured now stands beside what is predicted
        table = deciding.with_occupied(predicted) if here else predicted
        table = deciding.with_seen(table) if real else table
        decision = table.decide()
        # What could be changed is told of devices that the user has or has named.
        named = candidates is own
        apart = deciding.worth_it(table, decision) if isinstance(what, Job) and what.apart and named else None
        changes: tuple[deciding.Advice, ...] = ()
        if advice and named:
            changes = deciding.advise(traced, predicted, decision, own)
        elif advice:
            alone = deciding.compare(traced, own, objective)
            changes = deciding.advise(traced, alone, alone.decide(), own)
        found = explanation_of(table, decision, apart, changes)
        if not named:
            found = replace(found, advice=changes, apart=None)
        turn = find_turn(what, traced, predicted, candidates) if advice else None
    # Steps that are timed make errors of their own.
    measured = _measured(what, predicted) if measure and isinstance(what, Workload) else {}
    this = here or not changed_fields(used)
    return replace(found, turn=turn, measured=measured, machine={**found.machine, "here": this})


def _sources(given: Source | Sequence[Source] | None) -> list[Source] | None:
    """What an argument names that takes one source or several; None where nothing was said."""
    if given is None or isinstance(given, (list, tuple)):
        return None if given is None else list(given)
    return [given]  # type: ignore[list-item]  # a sequence is a list or a tuple


def _may_have_gpus(candidates: deciding.Candidates, what: Workload | Job) -> bool:
    """Whether only CPUs are compared because no accelerator is there: none is unusable, and the model may be moved."""
    only_cpus = all(deciding.is_cpu(each.name) for each in candidates.each)
    return only_cpus and not candidates.left_out and deciding.movable_devices(what.modules, None)[0] is None


def check_measurable(what: Workload | Job, profile: Source | Sequence[Source] | None) -> None:
    """Raise ValueError where real steps cannot be timed on this machine, or would say nothing of what is predicted."""
    if isinstance(what, Job) or what.is_step_function:
        kind = "a Job" if isinstance(what, Job) else "a step function"
        raise ValueError(f"measure needs an nn.Module: {kind} cannot be timed without changing what it trains")
    for source in _sources(profile) or []:
        if (changed := changed_fields(deciding.profile_named(source))):
            raise ValueError(
                f"measure times steps on this machine, and the profile is of another one ({'; '.join(changed)}); leave "
                "profile out"
            )


def _measured(what: Workload, table: deciding.Table) -> dict[str, Measured]:
    """Real steps on the devices of the table that are on this machine, and how far predictions are off."""
    here = machine.available_devices()
    (part,) = table.parts
    timed = deciding.time_steps(what, {n: p for n, p in part.predictions.items() if n in here and p.fits})
    predicted = {name: table.costs[name].step_seconds for name in timed}
    return {name: Measured(*seen, off=predicted[name] / seen.step_seconds - 1.0) for name, seen in timed.items()}


def checked_work(
    model: Callable[..., Any] | Job, batch_shape: Any, threads: str = "keep", *, data: str, **arguments: Any
) -> Workload | Job:
    """What the arguments of a step describe, or the job itself, which takes none. Raises ValueError or TypeError."""
    if not isinstance(model, Job):
        return make_workload(model, batch_shape, data=data, **arguments)
    if any(value is not None for value in (batch_shape, *arguments.values())) or data != "host":
        raise ValueError("a Job says what to run: give batch_shape, mode, optimizer, steps and the like to its parts")
    check_choice("threads", threads, ("keep",))
    return model


def calibrate(
    *,
    budget: float = 60.0,
    devices: Iterable[str | torch.device] | str | None = None,
    progress: bool = True,
    path: str | os.PathLike[str] | None = None,
) -> Profile:
    """Measure this machine in about ``budget`` seconds, save the profile (None: in this machine's place), return it.

    Raises:
        ValueError, TypeError: a wrong argument.
        CalibrationError: a measurement could not be taken.
        ProfileError: the profile could not be written.
    """
    if isinstance(budget, bool) or not isinstance(budget, (int, float)):
        raise TypeError(f"budget must be a number of seconds, not {budget!r}")
    if not 0.0 < budget < float("inf"):
        raise ValueError(f"budget must be a positive number of seconds, not {budget!r}")
    names = check_devices(devices)
    if names is not None:
        check_available(names)
    # By name: calibration stands above this module, and brings scipy.
    run: Callable[..., Profile] = importlib.import_module("placer.calibration").calibrate
    return run(budget=float(budget), devices=names, progress=progress, path=path)


def load_profile(source: str | os.PathLike[str] | None = None) -> Profile:
    """The profile of this machine (None), in a file, or known by a name; else of the GPU that the catalog so names.

    The latter is driven by this machine's host as it was calibrated, else by a usual one. Staleness is not checked.

    Raises:
        ProfileError: ProfileMissing, ProfileDamaged, ProfileTooNew, ProfileTooOld or UnknownGPU.
    """
    return deciding.profile_named(source, samples=True)
