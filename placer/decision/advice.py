"""What would make a step faster: changes to the workload, each priced like the workload itself.

Only what the cost model can price is proposed: a dtype, a copy, a number of threads or a fused optimizer that the
profile has no measurement of is left out, not guessed. What remains is sorted by what it saves.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from placer import tracing
from placer.decision.decision import Decision
from placer.decision.objective import JOB
from placer.decision.pipeline import Question, answer, only_placer_errors
from placer.decision.steps import Traced, TracedPart, batch_size, traced_step
from placer.decision.table import Table
from placer.errors import PlacerError
from placer.nest import map_nest
from placer.pricing import UPDATE_PREFIX, is_update
from placer.tracing import OpCall, Trace
from placer.units import format_count
from placer.workload import Workload

#: A change that saves less than this share of the time is not worth naming: predictions are not that exact.
LEAST_GAIN = 0.05
#: By how much larger a batch is asked about.
LARGER = 4
#: A price of which less than this share is calibrated is a guess.
BACKED = 0.9
#: Advice on parts of a job below this share of its time is not asked for.
LEAST_SHARE = 0.2
#: Integer inputs up to this many elements keep their values when they are repeated; larger ones are only a shape.
_CONCRETE = 262_144


@dataclass(frozen=True)
class Advice:
    """A change to the workload, priced: ``change`` in words, ``how`` as code, and where it would then run best.

    ``before`` and ``after`` are seconds per step, for a larger ``batch`` per row of it, so that they compare; ``gain``
    is the share of ``before`` that is saved. ``changes_results`` tells that the model would compute something else,
    ``guess`` that much of ``after`` is not backed by calibration, ``tips`` that devices which are about the same
    would not be any more: ``device`` would be ahead.
    """

    kind: str
    change: str
    how: str
    device: str
    before: float
    after: float
    gain: float
    changes_results: bool = False
    guess: bool = False
    tips: bool = False


class _Change(NamedTuple):
    """A changed step: its workload, and its trace (None: to be traced), with ``rows`` times the rows it had."""

    kind: str
    change: str
    how: str
    workload: Workload
    trace: Trace | None
    rows: int = 1
    tried: tuple[int, ...] = ()


def advise(traced: Traced, question: Question, *, larger: Trace | None = None) -> tuple[Advice, ...]:
    """What would make a step faster; of a job, its longest parts on the chosen device, gains being shares of the job.

    Where none of the devices that the ``question`` asks about can run the ``traced`` work, there is nothing to change.
    ``larger``: the trace of a step with a batch ``LARGER`` times as large, where there is one already.
    """
    question = question.of(traced).asked_alone()
    try:
        table = answer(question)
    except PlacerError:
        return ()
    if table.unit != JOB:
        return _advise_step(traced.parts[0], question, table, larger)
    device = table.decide().device
    whole = table.costs[device].step_seconds
    advice: list[Advice] = []
    for part, priced in zip(traced.parts, table.parts, strict=True):
        share = part.count * priced.predictions[device].step_seconds / whole if whole else 0.0
        alone = table.alone(priced)
        if share < LEAST_SHARE or alone.decide().device != device:
            continue
        for row in _advise_step(part, question, alone):
            gain = share * row.gain
            if row.device == device and gain >= LEAST_GAIN:
                kind = "part" if row.kind == "batch" else row.kind  # its saving is a share of the job, not of a row
                change, after = f"{part.name}: {row.change}", (1.0 - gain) * whole
                advice.append(replace(row, kind=kind, change=change, before=whole, after=after, gain=gain, tips=False))
    return tuple(advice)


def _advise_step(part: TracedPart, question: Question, table: Table, larger: Trace | None = None) -> tuple[Advice, ...]:
    """The changes that save at least ``LEAST_GAIN`` of a step (per row, for a larger batch), the largest first.

    ``table`` is what the part alone takes. A change that cannot be traced or priced is left out.
    """
    if part.workload.is_step_function:
        return ()
    decision = table.decide()
    advice: list[Advice] = []
    with suppress(PlacerError), only_placer_errors():
        for change in _changes(part, table, decision, larger):
            with suppress(PlacerError), only_placer_errors():
                advice.append(_advice_on(change, part.workload, question, table, decision))
    return tuple(sorted((row for row in advice if row.gain >= LEAST_GAIN), key=lambda row: -row.gain))


def _changes(part: TracedPart, table: Table, decision: Decision, larger: Trace | None) -> Iterator[_Change]:
    """What could be changed, as far as the profiles of the devices can tell what it would take."""
    workload, trace = part.workload, part.trace
    predictions = table.parts[0].predictions
    size, fit = batch_size(workload), predictions[decision.device].priced.fit
    if size is not None and not trace.real:
        steps = None if workload.steps is None else -(-workload.steps // LARGER)
        more_rows = replace(with_batch(workload, size * LARGER), steps=steps)
        yield _Change("batch", f"a batch of {size * LARGER:,} instead of {size:,}", "", more_rows, larger, LARGER)
    accelerators = [p.priced.fit for name, p in predictions.items() if p.priced.device != "cpu" and p.priced.fit]
    if workload.data == "host" and accelerators:  # copies matter there only, and may make one the better choice
        if any("copy/h2d/pinned/bytes_per_second" in accelerator.rates for accelerator in accelerators):
            how = 'DataLoader(..., pin_memory=True) and data="pinned"'
            yield _Change("data", "batches in pinned memory", how, replace(workload, data="pinned"), trace)
        resident = replace(workload, data="device", outputs=workload.outputs or "host")
        how = 'data="device"' if trace.mode == "train" else f'data="device", outputs="{resident.outputs}"'
        yield _Change("data", "the data set kept on the device", how, resident, trace)
    if fit is None:
        return
    faster = fit.rates.get("flops/bfloat16", 0.0) > fit.rates.get("flops/float32", 0.0)
    if faster and workload.autocast is None and not trace.real:
        lower = replace(workload, autocast=torch.bfloat16)
        yield _Change("autocast", "autocast to bfloat16", "autocast=torch.bfloat16", lower, None)
    name, updates = trace.optimizer, fit.families.get("optimizer")
    if updates is not None and f"{UPDATE_PREFIX}{name}.fused" in updates.offsets:
        fused = with_fused(trace)
        yield _Change("optimizer", f"the fused form of {name}", f"{name}(..., fused=True)", workload, fused)
    counts = table.profile.threads("cpu") if decision.device == "cpu" and not table.thread_options else ()
    if len(counts) > 1:
        yield _Change("threads", "", "", workload, trace, tried=counts)


def _advice_on(change: _Change, before: Workload, question: Question, table: Table, decision: Decision) -> Advice:
    """The advice that a change of the workload ``before`` amounts to."""
    size = (batch_size(before) or 1) if change.rows > 1 else 1
    trace = tracing.trace(change.workload) if change.trace is None else change.trace
    question = question.of(traced_step(change.workload, trace))
    changed = answer(question.trying(change.tried) if change.tried else question)
    decided = changed.decide()
    best = changed.costs[decided.device]
    now, then = table.costs[decision.device].step_seconds, best.step_seconds / change.rows
    words, how = change.change, change.how
    if change.tried:
        words = f"{format_count(best.threads, 'CPU thread')} instead of {decision.threads}"
        how = f"torch.set_num_threads({best.threads})"
    return Advice(
        kind=change.kind,
        change=words,
        how=how,
        device=best.device,
        before=now / size,
        after=then / size,
        gain=1.0 - then / now if now and best.fits else 0.0,
        changes_results=change.kind == "autocast",
        guess=best.coverage < BACKED,
        tips=decision.tie and not decided.tie,
    )


# --- the changed steps ------------------------------------------------------------------------------------------------


def with_batch(workload: Workload, size: int) -> Workload:
    """The same workload on ``size`` rows: inputs become shapes; small integer ones (indices, masks) keep values.

    Its inputs share a first size. The target of a loss grows with them, and so does what a batch takes to load.
    """
    rows = batch_size(workload)
    assert rows is not None

    def resized(leaf: Any) -> Any:  # a target may have several entries for each row, as of flattened tokens
        if not isinstance(leaf, Tensor) or not leaf.dim() or leaf.shape[0] % rows:
            return leaf
        return _with_rows(leaf, leaf.shape[0] // rows * size)

    args, kwargs, loss_target = map_nest(resized, (workload.args, workload.kwargs, workload.loss_target))
    loading = workload.loading
    if loading is not None:
        loading = replace(loading, seconds=loading.seconds * size / rows)
    return replace(workload, args=args, kwargs=kwargs, loss_target=loss_target, loading=loading)


def _with_rows(tensor: Tensor, size: int) -> Tensor:
    """A tensor of ``size`` rows: without values, but for small integers, which are repeated."""
    plain = tensor.is_meta or tensor.is_floating_point() or tensor.is_complex()
    if plain or tensor[:1].numel() * size > _CONCRETE:
        return torch.empty((size, *tensor.shape[1:]), dtype=tensor.dtype, device="meta")
    times = -(-size // tensor.shape[0])
    return tensor.repeat(times, *(1,) * (tensor.dim() - 1))[:size]


def with_fused(trace: Trace) -> Trace:
    """The trace with its optimizer's update in one kernel."""

    def changed(call: OpCall) -> OpCall:
        if not is_update(call):
            return call
        settings = tuple(a for a in call.args if not (isinstance(a, tuple) and a[:1] in (("fused",), ("foreach",))))
        return call._replace(args=(("fused", True), *settings))

    return trace.everywhere(lambda step: replace(step, calls=tuple(map(changed, step.calls))))
