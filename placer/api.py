"""The public functions: ``choose``, ``explain``, ``calibrate`` and ``load_profile``.

The first two check their arguments, ask one ``Question``, and read its answer, a ``Table``: ``choose`` decides by it
and places the model, once the ranks of a distributed run agree; ``explain`` says why.
"""

from __future__ import annotations

import importlib
import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias, overload

import torch
from torch import nn

from placer import machine
from placer.collector import without_collection
from placer.compiler import called_as_it_is
from placer.decision import (
    Objective,
    Question,
    Source,
    Table,
    advise,
    answer,
    ask,
    check_priced,
    current_profile,
    gather,
    objective_of,
    only_placer_errors,
    profile_named,
    ranks,
    sources,
    time_steps,
    trace_parts,
    warn_estimated,
)
from placer.errors import PlacerError
from placer.explanation import Explanation, Measured, Turns, find_turn, off_before_calibration
from placer.placed import JobPlacement, Placement, Placing, record
from placer.profile import Profile, changed_fields, check_name
from placer.tracing import Trace
from placer.workload import (
    Data,
    Job,
    Mode,
    Outputs,
    Workload,
    check_available,
    check_choice,
    check_devices,
    check_devices_here,
    make_workload,
    override,
    strict,
)

#: Every decision is one INFO record of this logger.
_log = logging.getLogger("placer")
#: What names devices: one, several, or None for all of this machine.
Devices: TypeAlias = "Iterable[str | torch.device] | str | torch.device | None"


@dataclass(frozen=True)
class Options:
    """How ``choose`` and ``explain`` decide, where the usual way does not do.

    Args:
        threads: ``"keep"``, or ``"tune"`` to also choose (and set) the number of CPU threads.
        measure: ``"never"``, ``"always"`` (time the real step on this machine's devices, on copies of the model, in up
            to ten seconds), or for ``choose`` ``"unsure"`` (time it on the chosen device and on those whose intervals
            overlap its own, if there are any).
        objective: what to minimize: ``"time"``, ``"cost"`` (then ``price`` is needed) or ``"energy"``.
        price: dollars per hour of the machine while the work runs on each device: ``{"cpu": 0.10, "cuda": 2.50}``.
        watts: the power of each device, where you know it; None: an estimate from data sheets.

    Raises:
        ValueError, TypeError: a wrong argument.
    """

    threads: Literal["keep", "tune"] = "keep"
    measure: Literal["never", "unsure", "always"] = "never"
    objective: Literal["time", "cost", "energy"] = "time"
    price: Mapping[str, float] | None = None
    watts: Mapping[str, float] | None = None

    def __post_init__(self) -> None:
        check_choice("threads", self.threads, ("keep", "tune"))
        check_choice("measure", self.measure, ("never", "unsure", "always"))
        objective_of(self.objective, self.price, self.watts)

    @property
    def aim(self) -> Objective:
        """The objective, with its prices and powers."""
        return objective_of(self.objective, self.price, self.watts)


_USUAL = Options()


@overload
def choose(
    model: Job, *, devices: Devices = None, profile: Source | None = None, move: bool = True, options: Options = ...
) -> JobPlacement: ...


@overload
def choose(
    model: Callable[..., Any],
    batch: Any = None,
    *,
    batch_shape: Any = None,
    mode: Mode | None = None,
    loss: Callable[..., Any] | None = None,
    target: Any = None,
    optimizer: str | torch.optim.Optimizer | None = None,
    steps: int | None = None,
    data: Data = "host",
    outputs: Outputs | None = None,
    autocast: torch.dtype | bool | None = None,
    modules: nn.Module | Iterable[nn.Module] | None = None,
    devices: Devices = None,
    profile: Source | None = None,
    move: bool = True,
    options: Options = ...,
) -> Placement: ...


@called_as_it_is
def choose(
    model: Callable[..., Any] | Job,
    batch: Any = None,
    *,
    batch_shape: Any = None,
    mode: Mode | None = None,
    loss: Callable[..., Any] | None = None,
    target: Any = None,
    optimizer: str | torch.optim.Optimizer | None = None,
    steps: int | None = None,
    data: Data = "host",
    outputs: Outputs | None = None,
    autocast: torch.dtype | bool | None = None,
    modules: nn.Module | Iterable[nn.Module] | None = None,
    devices: Devices = None,
    profile: Source | None = None,
    move: bool = True,
    options: Options = _USUAL,
) -> Placement:
    """Predict where the workload finishes first, move the model (and optimizer state) there in place, and say why.

    Each decision is one INFO record of the logger ``placer``.

    Args:
        model: an ``nn.Module``, or a callable that performs one step on the inputs, with its own loss, backward pass
            and optimizers (then ``modules`` names what to move; it runs once, in a child process), or a ``Job``, which
            takes none of the arguments up to ``modules``.
        batch: one shape, like ``(32, 84)``, or a sequence of shapes, of float32 inputs; or a real batch: a tensor, or
            any nest of tensors (a tuple: positional arguments, a mapping: keyword arguments).
        batch_shape: another name of ``batch``; give one of the two.
        mode: ``"train"`` or ``"infer"``; None reads ``model.training``. A step function that runs backward trains.
        loss: a callable on the output, or on the output and ``target``. None: the output's own ``loss`` if it has one,
            else a sum over its floating tensors. Training only; one with weights (a module, or a bound method or
            partial function of one) moves along.
        target: what ``loss`` compares the output with, given as ``batch`` is; of losses of classes a shape like
            ``(32,)`` is that of their indices. It is copied to the device with the batch.
        optimizer: an instance or a name, ``"adam"`` when None. Training only; an instance's state moves with its
            parameters.
        steps: how many steps will follow; one-time costs are spread over them. None: a long run.
        data: where batches live: ``"host"`` (each one is copied), ``"pinned"`` or ``"device"``.
        outputs: where those of an inference go: ``"host"`` or ``"device"``; None: they stay where data stay.
        autocast: None, ``torch.bfloat16``, ``torch.float16``, or True for bfloat16.
        modules: what a step function moves.
        devices: names to choose from; None: all of this machine.
        profile: None: this machine's; a path, a name or a ``Profile``.
        move: False only answers.
        options: how to decide, where time on the present number of CPU threads is not what counts.

    Returns:
        A ``Placement``; of a ``Job`` a ``JobPlacement``. Without a calibration that holds, it is an estimate from
        published measurements, and the first in a process warns (a ``PlacerWarning``; ``PLACER_QUIET=1`` silences it).
        Without a trace, or for an accelerator of which nothing is known: one ``PlacerWarning`` and the default rule (an
        accelerator if present and the model fits), with ``confidence`` None. ``PLACER_STRICT=1`` raises instead of
        both.

    Raises:
        ValueError, TypeError: a wrong argument.
        PlacerError: only under ``PLACER_STRICT=1``.
    """
    work, local_accelerator = checked_work(
        model,
        batch,
        options,
        batch_shape=batch_shape,
        mode=mode,
        loss=loss,
        target=target,
        optimizer=optimizer,
        steps=steps,
        data=data,
        outputs=outputs,
        autocast=autocast,
        modules=modules,
    )
    names, forced = check_devices_here(devices, local_accelerator), override(local_accelerator)
    if not isinstance(move, bool):
        raise TypeError(f"move must be True or False, not {move!r}")
    if options.measure != "never":
        check_measurable(work, None)
    if profile is not None:
        check_name(profile)
    if options.objective == "cost":
        check_priced(options.aim, names or machine.available_devices())
    placing = Placing(work, optimizer, names, options.threads, move)
    if forced is not None:
        return logged(placing.forced(forced))
    try:
        # Steps that are timed make garbage, as they will in training.
        with without_collection() if options.measure == "never" else nullcontext(), only_placer_errors():
            started = time.perf_counter()
            traced = trace_parts(work)
            used = current_profile(profile)
            candidates = gather(used, names, here=True, modules=traced.modules, threads=options.threads)
            table = answer(Question(traced, candidates, options.aim, recorded=True, measure=options.measure))
            seconds = time.perf_counter() - started
            placement = placing.decided(table, Turns.of(traced, candidates, table))
        record(table, seconds)
    except PlacerError as error:
        if strict():
            raise
        return logged(placing.by_convention(error, profile))
    warn_estimated(used, off_before_calibration(used))
    return logged(placing.place(placement, table))


def logged(placement: Placement) -> Placement:
    """One INFO record of a decision; its fields ``device``, ``reason`` and ``figures`` are for programs."""
    figures = {
        name: {"step_seconds": row.step_seconds, "low": row.low, "high": row.high, "provenance": row.provenance}
        for name, row in placement.predictions.items()
    }
    fields = {"device": str(placement.device), "reason": placement.reason, "figures": figures}
    _log.info("%s", placement.reason, extra=fields)
    return placement


@called_as_it_is
def explain(
    model: Callable[..., Any] | Job,
    batch: Any = None,
    *,
    batch_shape: Any = None,
    mode: Mode | None = None,
    loss: Callable[..., Any] | None = None,
    target: Any = None,
    optimizer: str | torch.optim.Optimizer | None = None,
    steps: int | None = None,
    data: Data = "host",
    outputs: Outputs | None = None,
    autocast: torch.dtype | bool | None = None,
    modules: nn.Module | Iterable[nn.Module] | None = None,
    devices: Devices = None,
    profile: Source | Sequence[Source] | None = None,
    what_if: Source | Sequence[Source] | None = None,
    options: Options = _USUAL,
) -> Explanation:
    """What ``choose`` would say and why, layer by layer, without moving anything. Arguments as for ``choose``.

    Without a calibration that holds, its ``notes`` say that it is an estimate.

    ``what_if`` adds other accelerators to the comparison, one or several: that of a profile (a path or a name), or a
    GPU or CPU of the catalog (``"RTX 4090"``) beside this machine's host. Where only a CPU would be compared, and no
    ``devices`` are given, these are a T4, an RTX 4090 and an H100; ``()`` adds none. With an explicit ``profile`` the
    devices of that profile are compared, whatever this machine has; with several, side by side.

    With ``Options(measure="always")`` times of real steps stand beside the predictions, under ``measured``. That needs
    an ``nn.Module``, and predictions that are of this machine.

    A ``price`` among the ``options`` is shown beside every device also where time is the objective; that of
    ``cuda@Tesla T4`` may be given as ``Tesla T4``.

    Raises:
        ValueError, TypeError: a wrong argument.
        PlacerError: no usable profile (ProfileMissing, ProfileStale, UnknownGPU, ...), no trace of the step
            (TraceError), or the step could not be timed.
    """
    work, local_accelerator = checked_work(
        model,
        batch,
        options,
        batch_shape=batch_shape,
        mode=mode,
        loss=loss,
        target=target,
        optimizer=optimizer,
        steps=steps,
        data=data,
        outputs=outputs,
        autocast=autocast,
        modules=modules,
    )
    names = check_devices(devices, local_accelerator)
    measure = check_choice("measure", options.measure, ("never", "always")) == "always"
    if measure:
        check_measurable(work, profile)
    question = ask(
        work,
        devices=names,
        threads=options.threads,
        profile=profile,
        what_if=what_if,
        objective=options.aim,
        recorded=not measure,
    )
    return explained(question, measure=measure)


def explained(
    question: Question,
    *,
    advice: bool = True,
    turn: bool = True,
    measure: bool = False,
    larger: Trace | None = None,
) -> Explanation:
    """The answer to a question, and why. Without ``advice`` and ``turn`` only the step or the job itself is priced.

    ``measure`` times the real step on the devices of this machine. ``larger`` is the trace of a larger batch, where
    there is one already (see ``advise``). Raises PlacerError.
    """
    with only_placer_errors():
        traced = trace_parts(question.work)
        question = replace(question, work=traced)
        table = answer(question)
        changes = advise(traced, question, larger=larger) if advice else ()
        turning = find_turn(traced, question, table) if turn else None
    # Steps that are timed make errors of their own.
    measured = _measured(traced.parts[0].workload, table) if measure else {}
    with only_placer_errors():
        return Explanation.of(table, advice=changes, turn=turning, measured=measured)


def check_measurable(work: Workload | Job, profile: Source | Sequence[Source] | None) -> None:
    """Raise ValueError where real steps cannot be timed on this machine, or would say nothing of what is predicted."""
    if isinstance(work, Job) or work.is_step_function:
        kind = "a Job" if isinstance(work, Job) else "a step function"
        raise ValueError(f"measure needs an nn.Module: {kind} cannot be timed without changing what it trains")
    for source in sources(profile):
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


def checked_work(
    model: Callable[..., Any] | Job, batch: Any, options: Options, *, batch_shape: Any, data: Data, **arguments: Any
) -> tuple[Workload | Job, str | None]:
    """What the arguments of a step describe, or the job itself, which takes none; and this rank's own accelerator.

    Raises ValueError or TypeError.
    """
    local_accelerator = ranks.own_accelerator()
    if not isinstance(options, Options):
        raise TypeError(f"options must be a placer.Options, not {options!r}")
    if batch is not None and batch_shape is not None:
        raise TypeError("batch and batch_shape are one argument: give only one of them")
    batch = batch_shape if batch is None else batch
    if not isinstance(model, Job):
        return make_workload(model, batch, data=data, **arguments), local_accelerator
    if any(value is not None for value in (batch, *arguments.values())) or data != "host":
        raise ValueError("a Job says what to run: give batch, mode, optimizer, steps and the like to its parts")
    check_choice("threads", options.threads, ("keep",))
    return model, local_accelerator


def calibrate(
    *,
    budget: float = 60.0,
    devices: Devices = None,
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
    if not isinstance(progress, bool):
        raise TypeError(f"progress must be True or False, not {progress!r}")
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
    return profile_named(source)
