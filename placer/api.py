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
from typing import Any

import torch
from torch import nn

from placer import decision as deciding
from placer import machine
from placer.answer import Placement, PlacementBuilder, explanation_of, record
from placer.collector import without_collection
from placer.decision import Objective, ranks
from placer.errors import PlacerError, ProfileError
from placer.explanation import Explanation
from placer.profile import Profile, check_source
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
        objective: what to minimize: ``"time"``, ``"cost"`` (then ``price`` is needed) or ``"energy"``.
        price: dollars per hour of the machine while the work runs on each device: ``{"cpu": 0.10, "cuda": 2.50}``.
        watts: the power of each device, where you know it; None: an estimate from data sheets.

    Returns:
        A ``Placement``. Without a calibration that holds, it is an estimate from published measurements, and the first
        in a process warns (a ``PlacerWarning``; ``PLACER_QUIET=1`` silences it). Without a trace, or for an accelerator
        of which nothing is known: one ``PlacerWarning`` and the default rule (an accelerator if present and the
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
    return PlacementBuilder(what, optimizer, names, threads, move).place(table, decision, apart)


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
    profile: Profile | str | os.PathLike[str] | Sequence[Profile | str | os.PathLike[str]] | None = None,
    modules: nn.Module | Iterable[nn.Module] | None = None,
    what_if: str | os.PathLike[str] | None = None,
    objective: str = "time",
    price: Mapping[str, float] | None = None,
    watts: Mapping[str, float] | None = None,
) -> Explanation:
    """What ``choose`` would say and why, layer by layer, without moving anything. Arguments as for ``choose``.

    Without a calibration that holds, its ``notes`` say that it is an estimate.

    ``what_if`` adds another accelerator to the comparison: that of a profile (a path or a name), or a GPU or CPU of the
    catalog (``"RTX 4090"``) beside this machine's host. With an explicit ``profile`` the devices of that profile are
    compared, whatever this machine has; with several, side by side.

    A ``price`` is shown beside every device also where time is the objective; that of ``cuda@Tesla T4`` may be given as
    ``Tesla T4``.

    Raises:
        ValueError, TypeError: a wrong argument.
        PlacerError: no usable profile (ProfileMissing, ProfileStale, UnknownGPU, ...) or no trace of the step
            (TraceError).
    """
    aim = deciding.objective_of(objective, price, watts)
    what = checked_work(
        model, batch_shape, threads, example=example, mode=mode, loss=loss, optimizer=optimizer, steps=steps, data=data,
        outputs=outputs, autocast=autocast, modules=modules,
    )  # fmt: skip
    names = check_devices(devices)
    check_choice("threads", threads, THREADS)
    return explain_workload(what, names, threads, profile, what_if, aim)


def explain_workload(
    what: Workload | Job,
    names: Sequence[str] | None = None,
    threads: str = "keep",
    profile: Profile | str | os.PathLike[str] | Sequence[Profile | str | os.PathLike[str]] | None = None,
    what_if: str | os.PathLike[str] | None = None,
    objective: Objective = deciding.TIME,
    *,
    advice: bool = True,
) -> Explanation:
    """``explain`` of arguments that were checked. Without ``advice`` only the step or the job itself is priced."""
    given: list[Any] = list(profile) if isinstance(profile, (list, tuple)) and profile else [profile]
    here = given[0] is None
    if here and names is not None:
        check_available(names)
    used = deciding.current_profile() if here else deciding.profile_named(given[0])
    host = used if "cpu" in used.devices() else None
    other = None if what_if is None else deciding.profile_named(what_if, host)
    beside = [deciding.profile_named(source, host) for source in given[1:]]
    with deciding.only_placer_errors():
        candidates = deciding.gather(
            used, names, here=here, modules=what.modules, threads=threads, what_if=other, beside=beside
        )
        traced = deciding.trace_parts(what)
        predicted = deciding.compare(traced, candidates, objective)
        table = deciding.with_seen(deciding.with_occupied(predicted)) if here else predicted
        decision = table.decide()
        apart = deciding.worth_it(table, decision) if isinstance(what, Job) and what.apart else None
        changes = deciding.advise(traced, predicted, decision, candidates) if advice else ()
        return explanation_of(table, decision, apart, changes)


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
