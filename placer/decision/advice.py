"""What would make a step faster: changes to the workload, each priced like the workload itself.

Only what the cost model can price is proposed: a dtype, a copy, a number of threads or a fused optimizer that the
profile has no measurement of is left out, not guessed. What remains is sorted by what it saves.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from contextlib import suppress
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
from placer.pricing import UPDATE_PREFIX, Prediction, is_update
from placer.profile import Device
from placer.tracing import OpCall, Trace
from placer.units import format_count
from placer.workload import Workload

#: Slow activations and the one to try in their place: close in shape, and one cheap kernel on every device.
SUBSTITUTES: Mapping[str, str] = {"mish": "silu", "gelu": "silu", "softplus": "relu", "elu": "relu"}
#: Integer inputs up to this many elements keep their values when they are repeated; larger ones are only a shape.
_CONCRETE = 262_144


def with_batch(workload: Workload, size: int) -> Workload:
    """The same workload on ``size`` rows: inputs become shapes; small integer ones (indices, masks) keep values.

    The target of a loss grows with the inputs, and so does what a batch takes to load.
    """
    rows = batch_size(workload)

    def resized(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor):
            return leaf
        return _with_rows(leaf, size)

    def as_many(leaf: Any) -> Any:  # a target may have several entries for each row, as of flattened tokens
        if not isinstance(leaf, Tensor) or not leaf.dim() or not rows or leaf.shape[0] % rows:
            return leaf
        return _with_rows(leaf, leaf.shape[0] // rows * size)

    args, kwargs = map_nest(resized, (workload.args, workload.kwargs))
    loading = workload.loading
    if loading is not None and rows:
        loading = dataclasses.replace(loading, seconds=loading.seconds * size / rows)
    loss_target = map_nest(as_many, workload.loss_target)
    return dataclasses.replace(workload, args=args, kwargs=kwargs, loss_target=loss_target, loading=loading)


def _with_rows(tensor: Tensor, size: int) -> Tensor:
    """A tensor of ``size`` rows: without values, but for small integers, which are repeated."""
    plain = tensor.is_meta or tensor.is_floating_point() or tensor.is_complex()
    if plain or tensor[:1].numel() * size > _CONCRETE:
        return torch.empty((size, *tensor.shape[1:]), dtype=tensor.dtype, device="meta")
    times = -(-size // tensor.shape[0])
    return tensor.repeat(times, *(1,) * (tensor.dim() - 1))[:size]


def substituted(trace: Trace, name: str) -> Trace:
    """The trace with one activation, forward and backward, replaced by its substitute."""
    new = SUBSTITUTES[name]
    backward = "aten::threshold_backward" if new == "relu" else f"aten::{new}_backward"

    def changed(call: OpCall) -> OpCall:
        if call.op in (f"aten::{name}", f"aten::{name}_"):
            return call._replace(op=f"aten::{new}", args=())
        if call.op == f"aten::{name}_backward":
            return call._replace(op=backward, args=(0,) if new == "relu" else ())
        return call

    return trace.everywhere(lambda step: dataclasses.replace(step, calls=tuple(map(changed, step.calls))))


def knows_fused(fit: Device, optimizer: str) -> bool:
    """Whether the fused form of an optimizer (as traced: ``Adam``) was measured on a device."""
    family = fit.families.get("optimizer")
    return family is not None and f"{UPDATE_PREFIX}{optimizer}.fused" in family.offsets


def with_fused(trace: Trace) -> Trace:
    """The trace with its optimizer's update in one kernel."""

    def changed(call: OpCall) -> OpCall:
        if not is_update(call):
            return call
        settings = tuple(a for a in call.args if not (isinstance(a, tuple) and a[:1] in (("fused",), ("foreach",))))
        return call._replace(args=(("fused", True), *settings))

    return trace.everywhere(lambda step: dataclasses.replace(step, calls=tuple(map(changed, step.calls))))


#: A change that saves less than this share of the time is not worth naming: predictions are not that exact.
LEAST_GAIN = 0.05
#: By how much larger a batch is asked about.
LARGER = 4
#: A price of which less than this share is calibrated is a guess.
BACKED = 0.9


@dataclasses.dataclass(frozen=True)
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


#: Advice on parts of a job below this share of its time is not asked for.
LEAST_SHARE = 0.2


def advise(traced: Traced, question: Question, table: Table) -> tuple[Advice, ...]:
    """What would make a step faster; of a job, its longest parts on the chosen device, gains being shares of the job.

    ``table`` is the answer to the ``question`` of the ``traced`` work. Where none of the devices asked about can run
    it, there is nothing to change.
    """
    question, asked_about = question.asked_alone(), table.asked_alone()
    if asked_about is None:
        return ()
    table = asked_about.predicted or asked_about
    if table.unit != JOB:
        return _advise_step(traced.parts[0], question, table)
    device = asked_about.decide().device
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
                advice.append(
                    dataclasses.replace(
                        row,
                        kind=kind,
                        change=f"{part.name}: {row.change}",
                        before=whole,
                        after=(1.0 - gain) * whole,
                        gain=gain,
                        tips=False,
                    )
                )
    return tuple(advice)


class _Change(NamedTuple):
    """A changed step: its workload, and its trace (None: to be traced), with ``rows`` times the rows it had."""

    kind: str
    change: str
    how: str
    workload: Workload
    trace: Trace | None
    rows: int = 1
    changes_results: bool = False


def _advise_step(part: TracedPart, question: Question, table: Table) -> tuple[Advice, ...]:
    """The changes that save at least ``LEAST_GAIN`` of a step (per row, for a larger batch), the largest first.

    ``table`` is what the part alone takes. A change that cannot be traced or priced is left out; nothing is raised.
    """
    if part.workload.is_step_function:
        return ()
    decision = table.decide()
    advice: list[Advice] = []
    with suppress(PlacerError), only_placer_errors():
        advice += _threads(part, question, table, decision)
    with suppress(PlacerError), only_placer_errors():
        for change in _changes(part, table.parts[0].predictions, decision.device):
            # Where the changed step cannot be traced, or its profile knows nothing of it, it is left out.
            with suppress(PlacerError), only_placer_errors():
                advice.append(_advice_on(change, part.workload, question, table, decision))
    return tuple(sorted((row for row in advice if row.gain >= LEAST_GAIN), key=lambda row: -row.gain))


def _changes(part: TracedPart, predictions: Mapping[str, Prediction], chosen: str) -> Iterator[_Change]:
    """What could be changed, as far as the profiles of the devices can tell what it would take."""
    workload, trace, fit = part.workload, part.trace, predictions[chosen].priced.fit
    size = batch_size(workload)
    if size is not None and not trace.real:
        steps = None if workload.steps is None else -(-workload.steps // LARGER)
        larger = dataclasses.replace(workload, steps=steps)
        yield _Change("batch", f"a batch of {size * LARGER:,} instead of {size:,}", "", larger, None, LARGER)
    accelerators = [p.priced for p in predictions.values() if p.priced.device != "cpu"]
    fits = [priced.fit for priced in accelerators if priced.fit is not None]
    if workload.data == "host" and fits:  # copies matter on accelerators only, and may make one the better choice
        if any("copy/h2d/pinned/bytes_per_second" in each.rates for each in fits):
            how = 'DataLoader(..., pin_memory=True) and data="pinned"'
            yield _Change("data", "batches in pinned memory", how, dataclasses.replace(workload, data="pinned"), trace)
        resident = dataclasses.replace(workload, data="device", outputs=workload.outputs or "host")
        how = 'data="device"' if trace.mode == "train" else f'data="device", outputs="{resident.outputs}"'
        yield _Change("data", "the data set kept on the device", how, resident, trace)
    rates: Mapping[str, float] = {} if fit is None else fit.rates
    faster = rates.get("flops/bfloat16", 0.0) > rates.get("flops/float32", 0.0)
    if faster and workload.autocast is None and not trace.real:
        lower = dataclasses.replace(workload, autocast=torch.bfloat16)
        how = "autocast=torch.bfloat16"
        yield _Change("autocast", "autocast to bfloat16", how, lower, None, changes_results=True)
    name = trace.optimizer
    if name is not None and fit is not None and knows_fused(fit, name):
        fused = with_fused(trace)
        yield _Change("optimizer", f"the fused form of {name}", f"{name}(..., fused=True)", workload, fused)
    if trace.syncs and accelerators:
        times = "once" if trace.syncs == 1 else f"{trace.syncs} times"
        change = f"no value read back during the step (now {times})"
        unread = trace.everywhere(lambda step: dataclasses.replace(step, syncs=0))
        yield _Change("sync", change, "", workload, unread)
    ops = {call.op.removeprefix("aten::").removesuffix("_backward").rstrip("_") for call in trace.calls}
    for name, new in SUBSTITUTES.items():
        if name in ops:
            how = f"torch.nn.functional.{new}"
            other = substituted(trace, name)
            yield _Change("op", f"{new} in place of {name}", how, workload, other, changes_results=True)


def _advice_on(change: _Change, before: Workload, question: Question, table: Table, decision: Decision) -> Advice:
    """The advice that a change of the workload ``before`` amounts to."""
    size = (batch_size(before) or 1) if change.rows > 1 else 1
    workload = change.workload if change.rows == 1 else with_batch(change.workload, size * change.rows)
    trace = tracing.trace(workload) if change.trace is None else change.trace
    changed = answer(question.of(traced_step(workload, trace)))
    decided = changed.decide()
    best = changed.costs[decided.device]
    now, then = table.costs[decision.device].step_seconds, best.step_seconds / change.rows
    return Advice(
        kind=change.kind,
        change=change.change,
        how=change.how,
        device=best.device,
        before=now / size,
        after=then / size,
        gain=1.0 - then / now if now and best.fits else 0.0,
        changes_results=change.changes_results,
        guess=best.coverage < BACKED,
        tips=decision.tie and not decided.tie,
    )


def _threads(part: TracedPart, question: Question, table: Table, decision: Decision) -> list[Advice]:
    """The best of the other calibrated numbers of threads, where the CPU is the choice."""
    candidates = question.candidates
    cpu = next((candidate for candidate in candidates.each if candidate.name == "cpu"), None)
    if decision.device != "cpu" or cpu is None or cpu.tried:
        return []
    tuning = dataclasses.replace(cpu, tried=cpu.profile.threads("cpu"))
    alone = Question(traced_step(part.workload, part.trace), dataclasses.replace(candidates, each=(tuning,)))
    best, now = answer(alone).costs["cpu"], table.costs["cpu"]
    if best.threads == now.threads:
        return []
    return [
        Advice(
            kind="threads",
            change=f"{format_count(best.threads, 'CPU thread')} instead of {now.threads}",
            how=f"torch.set_num_threads({best.threads})",
            device="cpu",
            before=now.step_seconds,
            after=best.step_seconds,
            gain=1.0 - best.step_seconds / now.step_seconds,
            guess=best.coverage < BACKED,
        )
    ]
