"""Traces one step of a workload in a forked child: on tensors without values, or for real where those cannot follow.

The user's objects are used as they are, and may change there; only the trace comes back. Where no child can be forked,
the same happens in this process, to deep copies.
"""

from __future__ import annotations

import dataclasses
import os
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeAlias

from torch import Tensor, nn

from placer import machine
from placer.errors import TraceError, first_line
from placer.tracing import child, copies, values
from placer.tracing.copies import Reachable
from placer.tracing.fused_ops import DifferentiatedTwice
from placer.tracing.isolation import follow_threads, isolated, same_state, without_compiler
from placer.tracing.step import Attempt, FailedOnMeta, NothingTrains, run_step
from placer.tracing.trace_data import Trace
from placer.tracing.values import NeedsRealRun, ValueUnknown
from placer.workload import Workload, compiled_inside, compiled_mode, spread_over_processes, unwrap

#: A trace, and the kinds of devices that run other ops, each with a note or "".
_Found: TypeAlias = tuple[Trace, dict[str, str]]

#: On copies in this process, tracing replaces hooks and imports for all threads: one step at a time.
_one_at_a_time = threading.RLock()


def _after_fork() -> None:
    """Replace the lock in a child, where the thread that held it does not exist."""
    global _one_at_a_time
    _one_at_a_time = threading.RLock()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_after_fork)


def trace(workload: Workload, *, limit_seconds: float = child.LIMIT_SECONDS) -> Trace:
    """The ordered op calls of one step of ``workload``, without running it where that is possible.

    Tensors without values follow most networks. Where they cannot (a step that reads values, TorchScript, custom ops),
    and for step functions, the step runs once, for real, on one thread of the CPU: ``Trace.real`` and its notes say so.
    A step that runs other ops on other kinds of devices is traced once more for each of them: see ``Trace.on``. Where
    that fails, the first trace stands for all of them, and its notes say so. All of it may take ``limit_seconds``.

    Nothing of the user's changes. Raises TraceError when the step raises, ends its process or takes too long.
    """
    for module in workload.modules:
        spread = spread_over_processes(unwrap(module))
        if spread is not None:  # a process that only traces must not exchange tensors with others
            raise TraceError(spread)
    return _for_all_kinds(workload, partial(_in_child, workload, limit_seconds, time.monotonic()))


def trace_here(workload: Workload) -> Trace:
    """As ``trace``, on copies in this process: what the step does to what is not copied stays.

    For networks that are placer's own, as no fork has to be paid for.
    """
    return _for_all_kinds(workload, partial(_on_copies, workload))


def _for_all_kinds(workload: Workload, run: Callable[[Attempt], _Found]) -> Trace:
    """The trace for the CPU, with those for the kinds of devices that run other ops."""
    first = Attempt(real=workload.is_step_function)
    on_cpu, differing = _first_success(workload, first, run)
    others: dict[str, Trace] = {}
    notes = [*on_cpu.notes, *_eager_all_the_same(workload, on_cpu), *_on_one_device(workload)]
    for name, note in sorted(differing.items()):
        try:
            others[name], _ = _first_success(workload, dataclasses.replace(first, kind=name, note=note), run)
        except TraceError as error:
            notes.append(f"what {name} runs instead of some ops could not be traced: {first_line(error)}")
    return dataclasses.replace(on_cpu, others=others, notes=tuple(notes))


def _on_one_device(workload: Workload) -> Iterator[str]:
    """A note on what spreads a batch over several GPUs."""
    for module in workload.modules:
        for part in module.modules():
            if isinstance(part, nn.DataParallel) and len(part.device_ids) > 1:
                yield f"DataParallel shares a batch out to {len(part.device_ids)} GPUs; predicted is one with all of it"
                return


def _first_success(workload: Workload, attempt: Attempt, run: Callable[[Attempt], _Found]) -> _Found:
    """What the first attempt that succeeds finds. Raises the error of the last one."""
    while True:
        try:
            return run(attempt)
        except TraceError as error:
            following = _attempt_after(attempt, error, workload.may_infer)
            if following is None:
                raise
            attempt = following


def _attempt_after(attempt: Attempt, error: TraceError, may_infer: bool) -> Attempt | None:
    """The attempt that may succeed where one raised ``error``; None where none does.

    ``may_infer``: nobody said that the step trains.
    """
    if isinstance(error, DifferentiatedTwice) and attempt.fused:
        return dataclasses.replace(attempt, fused=False)
    if isinstance(error, NothingTrains):
        return dataclasses.replace(attempt, trains=False) if attempt.trains and may_infer else None
    if attempt.real:
        return None
    if isinstance(error, ValueUnknown) and not attempt.floats:
        # It may be a constant, such as a solver's points in time, or drawn to drop layers: let those keep values.
        return dataclasses.replace(attempt, floats=True, why=str(error))
    if isinstance(error, (NeedsRealRun, child.Ended)):
        why = f"on tensors without values {error}" if isinstance(error, FailedOnMeta) else str(error)
        return dataclasses.replace(attempt, real=True, why=attempt.why or why)
    return None


def _in_child(workload: Workload, limit_seconds: float, began: float, attempt: Attempt) -> _Found:
    """Trace the step in a child, on its own objects; on copies where there can be no child."""
    hosted = _on_host(workload, attempt) if machine.accelerators() else {}

    def step() -> _Found:
        with isolated(), follow_threads():
            without_compiler()
            return run_step(workload, attempt, hosted)

    try:
        return child.call(step, limit_seconds=limit_seconds, began=began)
    except child.NoChild:
        return _on_copies(workload, attempt)


def _on_copies(workload: Workload, attempt: Attempt) -> _Found:
    """Trace the step in this process."""
    try:
        with _one_at_a_time, same_state(), isolated(), follow_threads():
            return run_step(copies.copied(workload, attempt.real), attempt, {})
    except SystemExit as error:
        raise TraceError(f"the step ends the process that it runs in, by SystemExit: {error}") from error


def _on_host(workload: Workload, attempt: Attempt) -> dict[int, Tensor]:
    """The values, by id, of the tensors on accelerators that a step reads in a child, which cannot ask for them."""
    roots: dict[str, Any] = {"inputs": workload.batch, "modules": list(workload.modules)}
    if attempt.real:
        roots |= {"step": workload.model, "loss": workload.loss, "optimizer": workload.optimizer}
    reachable = Reachable(**roots)
    return values.on_host([*values.of_modules(reachable.modules.values()), *reachable.tensors], attempt.real)


def _eager_all_the_same(workload: Workload, traced: Trace) -> Iterator[str]:
    """Notes on what ``torch.compile`` was given inside a step that is not compiled as a whole."""
    if workload.compiled is not None:
        if traced.compiled is None:
            yield "predicted as an eager step: the compiled function runs a backward pass, where its graph breaks"
        return
    inside: list[str] = []
    for module in workload.modules:
        inside += compiled_inside(module)
    if workload.is_step_function and any(compiled_mode(module) is not None for module in workload.modules):
        inside.insert(0, "the module of the step function")
    if inside:
        yield f"predicted as an eager step, though parts of it are compiled: {', '.join(inside[:3])}"
