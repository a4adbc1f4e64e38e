"""Traces one step of a workload: on meta tensors, or in a real run where meta tensors cannot follow it."""

from __future__ import annotations

import dataclasses
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from torch import nn

from placer import machine
from placer.errors import TraceError, first_line
from placer.tracing.copies import unwrap
from placer.tracing.device_kind import DeviceKind
from placer.tracing.isolation import isolated
from placer.tracing.layers import Layers
from placer.tracing.model_step import ModelStep
from placer.tracing.real_recorder import LIMIT_SECONDS, RealRecorder
from placer.tracing.step_function import counts_hold, trace_function
from placer.tracing.trace_data import Trace
from placer.tracing.undo import Undo
from placer.tracing.unfollowed import Unfollowed, ValueUnknown
from placer.workload import compiled_inside, compiled_mode

if TYPE_CHECKING:
    from placer.workload import Workload

#: Tracing replaces hooks and imports of the process: one step at a time.
_one_at_a_time = threading.RLock()


def _after_fork() -> None:
    """Replace the lock in the child, where the thread that held it does not exist."""
    global _one_at_a_time
    _one_at_a_time = threading.RLock()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_after_fork)


def trace(
    workload: Workload, *, limit_seconds: float = LIMIT_SECONDS, clock: Callable[[], float] = time.perf_counter
) -> Trace:
    """The ordered op calls of one step of ``workload``, without running it where that is possible.

    Meta tensors (shapes without values) follow most networks. Where they cannot (a step that reads values, TorchScript,
    custom ops), a copy of the model runs the step once, for real, on the CPU; a step function runs as it is. A real run
    may take ``limit_seconds`` of ``clock``, and ``Trace.notes`` says that there was one. A step that runs other ops on
    other kinds of devices is traced once more for each of them, with the same limit: see ``Trace.on``. Where that
    fails, the first trace stands for all of them, and its notes say so.

    The model, its inputs, the optimizer and every global state stay as they were, also when tracing fails. Raises
    TraceError when the step raises, takes too long, or cannot be copied.
    """
    with _one_at_a_time:
        kind = DeviceKind(_own_kind(workload))
        found = _traced(workload, kind, limit_seconds, clock)
        others: dict[str, Trace] = {}
        for name, note in sorted(kind.others.items()):
            try:
                other = _traced(workload, DeviceKind(name), limit_seconds, clock)
            except TraceError as error:
                failed = f"what {name} runs instead of some ops could not be traced: {first_line(error)}"
                found = dataclasses.replace(found, notes=(*found.notes, failed))
                continue
            others[name] = dataclasses.replace(other, notes=(*other.notes, *filter(None, (note,))))
        if workload.loop_calls:
            found = dataclasses.replace(found, loop_calls=workload.loop_calls)
            others = {n: dataclasses.replace(other, loop_calls=workload.loop_calls) for n, other in others.items()}
        said = tuple(_eager_all_the_same(workload, found))
        return dataclasses.replace(found, others=others, notes=(*found.notes, *said)) if others or said else found


def _eager_all_the_same(workload: Workload, found: Trace) -> Iterator[str]:
    """Notes on what ``torch.compile`` was given inside a step that is not compiled as a whole."""
    if workload.compiled is not None:
        if found.compiled is None:
            yield "priced as an eager step: the compiled function runs a backward pass, where its graph breaks"
        return
    inside = [path for module in workload.modules for path in compiled_inside(module)]
    if workload.is_step_function and any(compiled_mode(module) is not None for module in workload.modules):
        inside.insert(0, "the module of the step function")
    if inside:
        yield f"priced as an eager step, though parts of it are compiled: {', '.join(inside[:3])}"


def _own_kind(workload: Workload) -> str:
    """The kind of device a step is traced for first: a step function runs where its modules are, as it is there."""
    if not workload.is_step_function:
        return "cpu"
    kinds = (p.device.type for module in workload.modules for p in module.parameters() if not p.is_meta)
    return next(kinds, "cpu")


def _traced(workload: Workload, kind: DeviceKind, limit_seconds: float, clock: Callable[[], float]) -> Trace:
    if workload.is_step_function or not isinstance(workload.target, nn.Module):
        return trace_function(workload, kind, limit_seconds, clock)
    original = unwrap(workload.target)
    undo = Undo()  # the loss is the user's own function, and may write to what it closes over
    with isolated():
        try:
            return _followed(workload, original, undo, kind)
        except Unfollowed as why:
            return _real_run(workload, original, undo, kind, why, limit_seconds, clock)
        finally:
            undo.restore()


def _followed(workload: Workload, original: nn.Module, undo: Undo, kind: DeviceKind) -> Trace:
    """Trace on meta tensors. Raises Unfollowed where they cannot follow the step."""
    try:
        return ModelStep(workload, original, undo, kind).run()
    except ValueUnknown as unknown:
        # It may be a constant, such as a solver's points in time, or drawn to drop layers: let those keep their values.
        try:
            return ModelStep(workload, original, undo, kind, floats=True).run()
        except TraceError:
            raise unknown from None


def _real_run(
    workload: Workload,
    original: nn.Module,
    undo: Undo,
    kind: DeviceKind,
    why: Unfollowed,
    limit_seconds: float,
    clock: Callable[[], float],
) -> Trace:
    if any(p.is_meta for p in original.parameters()):
        raise TraceError(f"{why}, and a model on the meta device cannot run: give it values") from why
    _check_room(original, workload.mode == "train")
    if workload.draw is not None:
        workload.draw()
    undo.restore()

    def recorder(layers: Layers) -> RealRecorder:
        return RealRecorder(layers, undo, clock, limit_seconds)

    step = ModelStep(workload, original, undo, kind, real=recorder)
    reason = str(why) if isinstance(why, ValueUnknown) or why.__cause__ is None else f"on tensors without values {why}"
    step.copies.notes.insert(0, f"traced a real run of a copy, because {reason}; {counts_hold(workload)}")
    return step.run()


def _check_room(model: nn.Module, train: bool) -> None:
    """Raise TraceError where free memory cannot hold a real copy: its values, and gradients in training."""
    size = sum(t.numel() * t.element_size() for t in (*model.parameters(), *model.buffers())) * (2 if train else 1)
    free = machine.memory("cpu")[0]
    if size > free:
        raise TraceError(
            f"the step can only be traced by running a copy, which needs {size / 1e9:.1f} GB of memory; "
            f"{free / 1e9:.1f} GB are free"
        )
