"""The public functions: ``choose``, ``explain``, ``calibrate`` and ``load_profile``.

``choose`` is a pipeline. It checks the arguments, looks up what was decided before, and otherwise traces one step,
prices it on every device and decides. The ranks of a distributed run agree on one answer. Then the model is placed.
"""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from placer import decision as deciding
from placer import profile as profiles
from placer import tracing
from placer.answer import Mover, Placement, explanation_of, placement_of, record
from placer.decision import Comparison, Plan, Request, ranks
from placer.errors import PlacerError, ProfileError, first_line
from placer.explanation import Explanation
from placer.placement import move_optimizer, same_device, target
from placer.pricing import named_profile
from placer.profile import Profile
from placer.workload import (
    THREADS,
    Workload,
    check_available,
    check_choice,
    check_devices,
    make_workload,
    override,
    strict,
)


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
        A ``Placement``. Without a calibration that holds, it is an estimate from published measurements, and the first
        in a process warns (a ``PlacerWarning``; ``PLACER_QUIET=1`` silences it). Without a trace, or for an accelerator
        of which nothing is known: one ``PlacerWarning`` and the conventional rule (an accelerator if present and the
        model fits), with ``confidence`` None. ``PLACER_STRICT=1`` raises instead of both.

    Raises:
        ValueError, TypeError: a wrong argument.
        PlacerError: only under ``PLACER_STRICT=1``.
    """
    words = None
    if modules is None and isinstance(model, nn.Module):
        words = deciding.words(
            batch_shape, example, mode, loss, optimizer, steps, data, autocast, devices, threads, measure
        )
        plan = deciding.answered_before(model, words, threads, measure, profile)
        if plan is not None and (not move or _is_there(model, plan, optimizer)):
            return placement_of(plan, plan.decision, data)
    workload = make_workload(
        model, batch_shape, example=example, mode=mode, loss=loss, optimizer=optimizer, steps=steps, data=data,
        autocast=autocast, modules=modules,
    )  # fmt: skip
    request = deciding.check(workload, devices, threads, measure, profile)
    mover = Mover(request, optimizer, move)
    forced = override()
    if forced is not None:
        return mover.forced(forced)
    try:
        started = time.perf_counter()
        plan, is_news = deciding.look_up(request)
        if plan is None:
            plan, is_news = _new_plan(request), True
            deciding.remember(request, plan)
        if is_news:
            record(plan, time.perf_counter() - started)
    except PlacerError as error:
        if strict():
            raise
        return mover.by_convention(error)
    deciding.say_estimated(plan.profile)
    deciding.understood(request, words)
    agreed = ranks.agreed(plan.decision, plan.predictions, workload, tuned=threads == "tune")
    return mover.place(plan, agreed)


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

    Without a calibration that holds, its ``notes`` say that it is an estimate.

    ``what_if`` adds another accelerator to the comparison: that of a profile (a path or a name), or a GPU of the
    catalog (``"RTX 4090"``) beside this machine's host. With an explicit ``profile`` the devices of that profile are
    compared, whatever this machine has; with several, side by side.

    Raises:
        ValueError, TypeError: a wrong argument.
        PlacerError: no usable profile (ProfileMissing, ProfileStale, UnknownGPU, ...) or no trace of the step
            (TraceError).
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
    profiles.check_source(own)
    if own is None and names is not None:
        check_available(names)
    used = deciding.present_profile() if own is None else _named(own)
    notes: tuple[str, ...] = ()
    if own is None:
        names, notes = deciding.reachable(workload, names)
    elif used.created and (changed := profiles.changed_fields(used)):
        notes = (f"the profile was measured on another machine or setup ({'; '.join(changed)})",)
    host = used if "cpu" in used.devices() else None
    other = None if what_if is None else _named(what_if, host)
    others = tuple(_named(source, host) for source in beside)
    comparison = deciding.compare(
        used, devices=names, threads=threads, what_if=other, beside=others, here=own is None,
        home=deciding.home(workload), notes=notes,
    )  # fmt: skip
    plan = make_plan(workload, comparison)
    seen = deciding.with_seen(deciding.with_occupied(plan), workload.steps) if own is None else plan
    return replace(explanation_of(seen), advice=deciding.advise(workload, plan, comparison) if advice else ())


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
    # By name: calibration stands above this module, and brings scikit-learn.
    run: Callable[..., Profile] = importlib.import_module("placer.calibration").calibrate
    return run(budget=float(budget), devices=names, progress=progress, path=path)


def load_profile(source: str | os.PathLike[str] | None = None) -> Profile:
    """The profile of this machine (None), in a file, or known by a name; else of the GPU that the catalog so names.

    The latter is driven by this machine's host as it was calibrated, else by a usual one. Staleness is not checked.

    Raises:
        ProfileError: ProfileMissing, ProfileDamaged, ProfileTooNew, ProfileTooOld or UnknownGPU.
    """
    return _named(source, samples=True)


def make_plan(workload: Workload, comparison: Comparison) -> Plan:
    """Trace one step, price it on every device, decide. Raises TraceError or ProfileError."""
    traced = tracing.trace(workload)
    prices = comparison.price(traced, workload)
    return deciding.decided(workload, traced, comparison, prices)


def _named(
    source: Profile | str | os.PathLike[str] | None, host: Profile | None = None, *, samples: bool = False
) -> Profile:
    """A profile by path or name, else of a GPU of the catalog, driven by the CPU of ``host`` (None: this machine's)."""

    def this_machine() -> Profile | None:
        try:
            return profiles.load_cached(None)
        except ProfileError:
            return None

    profiles.check_source(source)
    return named_profile(source, this_machine if host is None else lambda: host, samples=samples)


def _new_plan(request: Request) -> Plan:
    """A plan made now, with what is known of busy devices and of real step times. Every failure is a PlacerError."""
    workload = request.workload
    try:
        plan = deciding.with_occupied(make_plan(workload, request.comparison()))
        plan = plan if request.measure == "never" else deciding.with_race(plan, workload, request.measure)
        return deciding.with_seen(plan, workload.steps)
    except PlacerError:
        raise
    except Exception as error:
        # The boundary of "choose never breaks a training script": tracing runs the user's own code on tensors it was
        # not written for, pricing sees ops nobody foresaw; what they raise must end in a warning, not in a crash.
        raise PlacerError(f"pricing failed with {type(error).__name__}: {first_line(error)}") from error


def _is_there(model: nn.Module, plan: Plan, optimizer: Any) -> bool:
    """Whether the model is where the plan puts it; then the optimizer's state is brought there too."""
    device, here = target(plan.decision.device), deciding.plans.device_of(model)
    if here is None or not same_device(here, device):
        return False
    if isinstance(optimizer, torch.optim.Optimizer):
        move_optimizer(optimizer, device)
    return True
