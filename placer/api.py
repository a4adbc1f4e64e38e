"""The public functions: ``choose``, ``explain``, ``calibrate`` and ``load_profile``."""

from __future__ import annotations

import functools
import os
import time
import warnings
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from placer.decision import history, observed, planning, ranks
from placer.decision.advice import advise
from placer.decision.asked import words
from placer.decision.decision import Decision
from placer.decision.occupied import with_occupied
from placer.decision.plans import Plan, Plans
from placer.decision.second_opinion import with_race, with_seen
from placer.errors import PlacerError, PlacerWarning, first_line
from placer.explanation import Explanation, build
from placer.machine import host as machine
from placer.placement.batches import staging
from placer.placement.moving import move_optimizer, same_device
from placer.placement.placement import Placement
from placer.placement.relocation import place, place_or_stay
from placer.profile import profile as profiles
from placer.profile.profile import Profile
from placer.workload.arguments import MEASURE, THREADS, check_available, check_choice, check_devices, override, strict
from placer.workload.workload import Workload, make_workload

plans = Plans()
if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=plans.unlock)


def choose(
    model: Callable[..., Any],
    batch_shape: Any = None,
    *,
    example: Any = None,
    mode: str | None = None,
    loss: Callable[..., Any] | None = None,
    optimizer: str | torch.optim.Optimizer | None = None,
    steps: int | None = None,
    data: str = "host",
    autocast: torch.dtype | bool | None = None,
    devices: Iterable[str | torch.device] | str | None = None,
    threads: str = "keep",
    measure: str = "never",
    profile: Profile | str | os.PathLike[str] | None = None,
    move: bool = True,
    modules: nn.Module | Iterable[nn.Module] | None = None,
) -> Placement:
    """Predict where the workload finishes first, move the model (and optimizer state) there in place, and say why.

    Args:
        model: an ``nn.Module``, or a callable that performs one step on the inputs, with its own loss, backward pass
            and optimizers (then ``modules`` names what to move). It runs once; what it did to tensors is undone.
        batch_shape: one shape, or a sequence of shapes, of float32 inputs.
        example: instead of ``batch_shape``: a tensor or nest of tensors (a tuple: positional, a mapping: by keyword).
        mode: ``"train"`` or ``"infer"``; None reads ``model.training``. A step function that runs backward trains.
        loss: a callable on the output; None: a sum over the floating outputs. Training only.
        optimizer: an instance or a name, ``"adam"`` when None. Training only; an instance's state moves along.
        steps: how many steps will follow; one-time costs are spread over them. None: a long run.
        data: where batches live: ``"host"``, ``"pinned"`` or ``"device"``.
        autocast: None, ``torch.bfloat16``, ``torch.float16``, or True for bfloat16.
        devices: names to choose from; None: all of this machine.
        threads: ``"keep"``, or ``"tune"`` to also choose (and set) the number of CPU threads.
        measure: ``"never"``, ``"unsure"`` (time the real step when the intervals overlap) or ``"always"``.
        profile: None: this machine's; a path, a name or a ``Profile``.
        move: False only answers.
        modules: what a step function moves.

    Returns:
        A ``Placement``. Without a usable profile or trace: one ``PlacerWarning`` and the conventional rule (an
        accelerator if present and the model fits), with ``confidence`` None; ``PLACER_STRICT=1`` raises instead.

    Raises:
        ValueError, TypeError: a wrong argument.
        PlacerError: only under ``PLACER_STRICT=1``.
    """
    said: Hashable = None
    if modules is None and isinstance(model, nn.Module):
        said = words(batch_shape, example, mode, loss, optimizer, steps, data, autocast, devices, threads, measure)
        answered = _again(model, said, optimizer, threads, measure, profile, data, move)
        if answered is not None:
            return answered
    workload = make_workload(
        model, batch_shape, example=example, mode=mode, loss=loss, optimizer=optimizer, steps=steps, data=data,
        autocast=autocast, modules=modules,
    )  # fmt: skip
    names = check_devices(devices)
    check_choice("threads", threads, THREADS)
    check_choice("measure", measure, MEASURE)
    planning.check_source(profile)
    if measure != "never" and workload.is_step_function:
        raise ValueError("measure needs an nn.Module: a step function cannot be timed without changing what it trains")
    if names is not None:
        check_available(names)
    forced = override()
    if forced is not None:
        decision = Decision(forced, torch.get_num_threads(), None, f"{forced}: set by PLACER_DEVICE")
        return place(Placement(decision, pinned=data == "pinned"), workload, optimizer, move, threads)
    asked_for, names = names, names or ranks.own_devices()
    try:
        plan = _plan(workload, names, threads, measure, profile)
    except PlacerError as error:
        if strict():
            raise
        decision = ranks.agreed(planning.conventional(workload, names, str(error)), (), workload)
        placement = Placement(decision, pinned=data == "pinned")
        placement = place_or_stay(placement, workload, optimizer, move, threads, names)
        next_command = "" if "run: " in str(error) else "; to see where, run with PLACER_STRICT=1"
        message = f"placed on {placement.device} without a prediction: {error}{next_command}"
        if placement.decision is not decision:
            message = f"{message}; {placement.reason}"
        warnings.warn(PlacerWarning(message), stacklevel=2)
        return placement
    if isinstance(workload.target, nn.Module):
        plans.understood(workload.target, said, (workload.signature, asked_for))
    decision = ranks.agreed(plan.decision, plan.predictions, workload, tuned=threads == "tune")
    placement = _placement(plan, decision, data)
    known = plans.device_of(workload.target) if isinstance(workload.target, nn.Module) else None
    placed = place_or_stay(placement, workload, optimizer, move, threads, names, known)
    if placed.decision is not decision:
        warnings.warn(PlacerWarning(f"not placed as predicted: {placed.reason}"), stacklevel=2)
    return placed


def explain(
    model: Callable[..., Any],
    batch_shape: Any = None,
    *,
    example: Any = None,
    mode: str | None = None,
    loss: Callable[..., Any] | None = None,
    optimizer: str | torch.optim.Optimizer | None = None,
    steps: int | None = None,
    data: str = "host",
    autocast: torch.dtype | bool | None = None,
    devices: Iterable[str | torch.device] | str | None = None,
    threads: str = "keep",
    profile: Profile | str | os.PathLike[str] | Sequence[Profile | str | os.PathLike[str]] | None = None,
    modules: nn.Module | Iterable[nn.Module] | None = None,
    what_if: str | os.PathLike[str] | None = None,
) -> Explanation:
    """What ``choose`` would say and why, layer by layer, without moving anything. Arguments as for ``choose``.

    ``what_if`` adds the accelerator of another profile (a shipped name or a path) to the comparison. With an explicit
    ``profile`` the devices of that profile are compared, whatever this machine has; with several, side by side.

    Raises:
        ValueError, TypeError: a wrong argument.
        PlacerError: no usable profile (ProfileMissing, ProfileStale, ...) or no trace of the step (TraceError).
    """
    workload = make_workload(
        model, batch_shape, example=example, mode=mode, loss=loss, optimizer=optimizer, steps=steps, data=data,
        autocast=autocast, modules=modules,
    )  # fmt: skip
    names = check_devices(devices)
    check_choice("threads", threads, THREADS)
    return explain_workload(workload, names, threads, profile, what_if)


def explain_workload(
    workload: Workload,
    names: Sequence[str] | None = None,
    threads: str = "keep",
    profile: Profile | str | os.PathLike[str] | Sequence[Profile | str | os.PathLike[str]] | None = None,
    what_if: str | os.PathLike[str] | None = None,
    *,
    advice: bool = True,
) -> Explanation:
    """``explain`` of arguments that were checked. Without ``advice`` nothing is priced but the workload itself."""
    asked: list[Any] = list(profile) if isinstance(profile, (list, tuple)) and profile else [profile]
    own, *beside = asked
    planning.check_source(own)
    if own is None and names is not None:
        check_available(names)
    used = planning.load_profile(own)
    notes: tuple[str, ...] = ()
    if own is None:
        planning.check_fresh(used)
        names, notes = planning.reachable(workload, names)
    elif changed := planning.changed_fields(used):
        notes = (f"the profile was measured on another machine or setup ({'; '.join(changed)})",)
    other = None if what_if is None else planning.load_profile(what_if)
    others = tuple(map(planning.load_profile, beside))
    comparison = planning.compare(used, devices=names, threads=threads, what_if=other, beside=others, here=own is None)
    plan = planning.make_plan(workload, comparison, notes)
    seen = with_seen(with_occupied(plan), workload.steps) if own is None else plan
    return replace(_explanation(seen), advice=advise(workload, plan, comparison) if advice else ())


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
    from placer.calibration.runner import calibrate as run

    return run(budget=float(budget), devices=names, progress=progress, path=path)


def load_profile(source: str | os.PathLike[str] | None = None) -> Profile:
    """The profile of this machine (None), in a file, or shipped under a name. Staleness is not checked.

    Raises:
        ProfileError: ProfileMissing, ProfileDamaged, ProfileTooNew or ProfileTooOld.
    """
    planning.check_source(source)
    return profiles.load(source)


def _again(
    model: nn.Module,
    said: Hashable,
    optimizer: Any,
    threads: str,
    measure: str,
    source: Profile | str | os.PathLike[str] | None,
    data: str,
    move: bool,
) -> Placement | None:
    """The answer to a question that was asked in the same words, if all it depends on is what it was; else None.

    None too where something has to be moved or agreed upon first.
    """
    if threads == "tune" or override() is not None or ranks.distributed():
        return None

    def question(meaning: tuple[Hashable, tuple[str, ...] | None]) -> Hashable:
        return _question(*meaning, threads, measure, planning.load_profile(source))

    try:
        found = plans.again(model, said, question)
    except PlacerError:
        return None
    if found is None or not _current(found[0]):
        return None
    plan, (_, asked_for) = found
    if asked_for is not None:
        check_available(asked_for)
    if move:
        device, here = torch.device(plan.decision.device), plans.device_of(model)
        if here is None or not same_device(here, device):
            return None
        if isinstance(optimizer, torch.optim.Optimizer):
            move_optimizer(optimizer, device)
    return _placement(plan, plan.decision, data)


def _placement(plan: Plan, decision: Decision, data: str) -> Placement:
    return Placement(
        decision,
        plan.predictions,
        pinned=data == "pinned",
        explain=functools.partial(_explanation, plan),
        workload=plan.key or None,
        staging=None if decision.device == "cpu" else staging(plan.profile, decision.device),
    )


def _plan(
    workload: Workload,
    names: Sequence[str] | None,
    threads: str,
    measure: str,
    source: Profile | str | os.PathLike[str] | None,
) -> Plan:
    """The plan for a workload, made before or made now. Every failure that is not a wrong argument is a PlacerError."""
    model = workload.target if isinstance(workload.target, nn.Module) else None
    profile = planning.load_profile(source)
    question = _question(workload.signature, names, threads, measure, profile)
    plan = None if model is None else plans.get(model, question)
    # The identity of a profile is only meaningful while it lives, and the plan keeps its own alive.
    if plan is not None and plan.profile is not profile:
        plan = None
    if plan is not None and _current(plan):
        return plan
    if plan is None and model is not None and measure == "never" and threads == "keep":
        plan = _interpolated(model, question, workload)
        if plan is not None:
            return plan
    started = time.perf_counter()
    known = plan
    plan = with_seen(_priced(workload, names, threads, measure, profile) if known is None else known, workload.steps)
    if model is not None:
        plans.put(model, question, plan)
    if known is None or plan.decision != known.decision:
        _record(plan, time.perf_counter() - started)
    return plan


def _question(
    signature: Hashable, names: Sequence[str] | None, threads: str, measure: str, profile: Profile
) -> Hashable:
    """Equal for questions with one answer, about models that are equal."""
    return (signature, names, threads, measure, id(profile), _settings())


def _current(plan: Plan) -> bool:
    """Whether no step was recorded since that the plan would take into account."""
    return plan.interpolated or plan.generation == observed.generation()


def _interpolated(model: nn.Module, question: Hashable, workload: Workload) -> Plan | None:
    """A plan made of those for a smaller and a larger input of the same model; None where that would say too little."""
    found = plans.between(model, question)
    if found is None:
        return None
    plan = planning.interpolated(*found, workload)
    if plan is not None:
        plans.put(model, question, plan)
    return plan


def _priced(workload: Workload, names: Sequence[str] | None, threads: str, measure: str, profile: Profile) -> Plan:
    """A plan made now. Every failure is a PlacerError."""
    try:
        planning.check_fresh(profile)
        names, notes = planning.reachable(workload, names)
        plan = planning.make_plan(workload, planning.compare(profile, devices=names, threads=threads), notes)
        plan = with_occupied(plan)
        return plan if measure == "never" else with_race(plan, workload, measure)
    except PlacerError:
        raise
    except Exception as error:
        # The boundary of "choose never breaks a training script": tracing runs the user's own code on tensors it was
        # not written for, pricing sees ops nobody foresaw; what they raise must end in a warning, not in a crash.
        raise PlacerError(f"pricing failed with {type(error).__name__}: {first_line(error)}") from error


def _settings() -> Hashable:
    """Process-wide switches a prediction depends on."""
    return (torch.get_num_threads(), machine.matmul_precision())


def _explanation(plan: Plan, *, with_timeline: bool = True) -> Explanation:
    return build(
        plan.predictions, plan.decision, plan.workload, planning.describe_machine(plan.profile), notes=plan.notes,
        with_timeline=with_timeline,
    )  # fmt: skip


def _record(plan: Plan, seconds: float) -> None:
    """Into the history, for ``placer explain`` without a target: layers folded to the model's own children."""
    try:
        kept = _explanation(plan, with_timeline=False).folded(depth=1)
        refused = history.record({"kind": "decision", "seconds": seconds, "explanation": kept.to_dict()})
    except Exception as error:  # whatever goes wrong in a diary costs a line of it, not the decision
        if strict():
            raise
        _warn_unkept(f"explaining one failed with {type(error).__name__}: {first_line(error)}")
        return
    if refused is not None:
        path = history.history_path()
        _warn_unkept(f"cannot write {path} ({refused}); make room there, or name another folder in PLACER_HOME")


@functools.cache
def _warn_unkept(why: str) -> None:
    """Once in a process and not for every decision: the answer is there all the same."""
    warnings.warn(PlacerWarning(f"decisions and step times are not kept for later runs: {why}"), stacklevel=5)
