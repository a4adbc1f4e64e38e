"""The comparison that all answers rest on: the parts of a workload, each traced once, priced on every candidate.

A step is a job of one part. ``choose`` moves to the best row of the table, ``explain`` tells it, a fleet sorts it.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from placer import machine, tracing
from placer import profile as profiles
from placer.decision.candidates import Candidate, Candidates, residence, unusual_settings
from placer.decision.decision import Decision, ThreadOption, decide
from placer.decision.objective import JOB, STEP, TIME, Objective, Unit, counted_seconds
from placer.decision.obstacles import Obstacles
from placer.errors import PlacerError, TraceError, first_line
from placer.lazy import cached_property
from placer.pricing import Cost, Prediction, Residence, predict, weakest
from placer.profile import Profile
from placer.tracing import Trace
from placer.units import format_count, format_seconds
from placer.workload import Job, Part, Workload


@dataclass(frozen=True)
class TracedPart:
    """One kind of step: what it is called, how often it runs, and its ops. ``model`` is equal where weights are shared.

    ``movable`` tells that a copy of its model can run it, so that it may run elsewhere than where the model is.
    """

    name: str
    count: float
    workload: Workload
    trace: Trace
    model: int = 0
    movable: bool = False


@dataclass(frozen=True)
class Traced:
    """A step or a job, traced: what does not depend on where it runs. ``repeats`` is how often it runs (None: long)."""

    parts: tuple[TracedPart, ...]
    repeats: int | None
    unit: Unit
    facts: Mapping[str, Any]

    @cached_property
    def obstacles(self) -> Obstacles:
        """What stands in the way of running all parts."""
        steps = [part.workload for part in self.parts]
        modules = [module for step in steps for module in step.modules]
        optimizers = [step.optimizer for step in steps if isinstance(step.optimizer, torch.optim.Optimizer)]
        return Obstacles(modules, optimizers, [part.trace for part in self.parts])


@dataclass(frozen=True)
class PricedPart:
    """A part by device; holds no reference to the model. ``key`` names its step in the history."""

    name: str
    count: float
    predictions: Mapping[str, Prediction]
    facts: Mapping[str, Any]
    model: int = 0
    movable: bool = False
    key: str = ""
    notes: tuple[str, ...] = ()

    @property
    def trains(self) -> bool:
        return any(found.priced.trace.mode == "train" for found in self.predictions.values())


@dataclass(frozen=True)
class Table:
    """A step or a job by device: ``costs`` of the whole, and the ``parts`` they add up from.

    ``profile`` is the one that is compared with. ``thread_options`` are the numbers of CPU threads that were compared,
    none unless that was asked for. ``left_out`` says which devices cannot be used, ``occupied`` which ones other jobs
    keep busy, and ``real`` where real step times took the place of predicted ones; ``measured``: they were taken now.
    """

    parts: tuple[PricedPart, ...]
    costs: Mapping[str, Cost]
    profile: Profile
    facts: Mapping[str, Any]
    repeats: int | None = None
    unit: Unit = STEP
    objective: Objective = TIME
    notes: tuple[str, ...] = ()
    thread_options: tuple[ThreadOption, ...] = ()
    left_out: tuple[str, ...] = ()
    occupied: tuple[str, ...] = ()
    real: str = ""
    measured: bool = False

    def with_parts(self, parts: Sequence[PricedPart]) -> Table:
        """The same of parts with other predictions."""
        return replace(self, parts=tuple(parts), costs=whole(parts, self.unit, self.repeats))

    def alone(self, part: PricedPart) -> Table:
        """The table of one part, as of a long run of its steps."""
        return replace(self, parts=(part,), costs=part.predictions, facts=part.facts, repeats=None, unit=STEP)

    def decide(self) -> Decision:
        """The device that is the best for the whole, and why."""
        found = decide(self.costs, self.repeats, self.objective, self.unit)
        reason = found.reason
        if found.device == "cpu":
            reason += _threads_reason(found.threads, self.thread_options)
        if self.real:
            reason += f" ({self.real})"
        reason = "; ".join((reason, *self.left_out, *self.occupied))
        return replace(found, thread_options=self.thread_options, reason=reason)


def trace_parts(what: Workload | Job) -> Traced:
    """Trace every step of a workload or a job. Raises TraceError, which names the part."""
    if isinstance(what, Workload):
        return traced_step(what, tracing.trace(what))
    found: list[TracedPart] = []
    for part, model in zip(what.parts, shared_models(what.parts), strict=True):
        try:
            trace = tracing.trace(part.workload)
        except TraceError as error:
            raise TraceError(f"part {part.name!r}: {error}") from error
        movable = isinstance(part.workload.target, nn.Module)
        found.append(TracedPart(part.name, part.count, part.workload, trace, model, movable))
    facts: dict[str, Any] = {
        "target": "job",
        "mode": "train" if any(part.trace.mode == "train" for part in found) else "infer",
        "inputs": [],
        "optimizer": None,
        "steps": what.repeats,
        "parts": {part.name: part.count for part in found},
        "op_calls": round(sum(part.count * len(part.trace.calls) for part in found)),
    }
    return Traced(tuple(found), what.repeats, JOB, facts)


def traced_step(workload: Workload, trace: Trace) -> Traced:
    """A single step that was traced."""
    return Traced((TracedPart("", 1, workload, trace),), workload.steps, STEP, described(workload, trace))


def compare(traced: Traced, candidates: Candidates, objective: Objective = TIME) -> Table:
    """Price all parts on every candidate that can run them. Raises PlacerError where none can, ProfileError."""
    able: list[Candidate] = []
    left_out = dict(candidates.left_out)
    for each in candidates.each:
        why = traced.obstacles.on(each.device, here=each.here)
        if why is None:
            able.append(each)
        else:
            left_out[each.name] = why
    told = told_left_out(left_out)
    if not able:
        raise PlacerError(f"no device can run it; {'; '.join(told)}")
    options: tuple[ThreadOption, ...] = ()
    priced: list[PricedPart] = []
    for part in traced.parts:
        where = residence(part.workload, candidates.fitted_as)
        predictions: dict[str, Prediction] = {}
        for each in able:
            predictions[each.name], tried = _with_best_threads(part, each, where)
            options = tried or options
        priced.append(PricedPart(
            part.name, part.count, predictions, described(part.workload, part.trace), part.model, part.movable,
            workload_key(part.trace, part.workload),
        ))  # fmt: skip
    costs = whole(priced, traced.unit, traced.repeats)
    origins = (origin(name, found, candidates.profile) for name, found in priced[0].predictions.items())
    return Table(
        tuple(priced), costs, candidates.profile, traced.facts, traced.repeats, traced.unit, objective,
        notes=(*candidates.notes, *told, *filter(None, origins), *profiles.notes(candidates.profile)),
        thread_options=options, left_out=told,
    )  # fmt: skip


def told_left_out(reasons: Mapping[str, str]) -> tuple[str, ...]:
    """A line for each of the ``reasons``, by device, that names all devices it holds for."""
    devices: dict[str, list[str]] = {}
    for name, why in reasons.items():
        devices.setdefault(why, []).append(name)
    return tuple(
        f"{', '.join(names)} {'is' if len(names) == 1 else 'are'} left out: {why}" for why, names in devices.items()
    )


def price(part: TracedPart, candidate: Candidate, where: Residence | None = None, threads: int = 0) -> Prediction:
    """A part on a candidate. ``where`` the model is counts on this machine, ``threads`` instead of the candidate's."""
    found = predict(
        part.trace, candidate.profile, devices=(candidate.device,), threads=threads or candidate.threads,
        data=part.workload.data, outputs=part.workload.outputs, steps=part.workload.steps,
        residence=where if candidate.here else Residence(here=False), loading=part.workload.loading,
    )[candidate.device]  # fmt: skip
    # Priced at the nearest calibrated number of threads, but this is the one it would run with.
    own = None if threads else candidate.process_threads
    return replace(found, device=candidate.name, threads=found.threads if own is None else own)


#: The number of threads a process has is kept unless another one saves more than this share of the step: two counts
#: share most of a prediction's error, and changing the setting touches the whole process.
THREADS_TIE = 0.05


def _with_best_threads(
    part: TracedPart, candidate: Candidate, where: Residence
) -> tuple[Prediction, tuple[ThreadOption, ...]]:
    """A part on a candidate with the best of the numbers of threads that it tries, and all of those."""
    found = price(part, candidate, where)
    if not candidate.tried:
        return found, ()
    tried = {found.threads: found}
    for count in candidate.tried:
        if count not in tried:
            tried[count] = price(part, candidate, where, count)
    best = best_count({count: p.step_seconds for count, p in tried.items()}, found.threads)
    options = (
        ThreadOption(count, count == found.threads, p.step_seconds, p.low, p.high) for count, p in sorted(tried.items())
    )
    return tried[best], tuple(options)


def best_count(steps: Mapping[int, float], now: int) -> int:
    """The number of threads with the shortest step; ``now`` where none is shorter by more than the tie.

    ``steps`` maps numbers of threads to seconds. Of equal steps the fewest threads win.
    """
    best = min(steps, key=lambda count: (steps[count], count))
    return now if now in steps and steps[best] >= steps[now] * (1.0 - THREADS_TIE) else best


def _threads_reason(chosen: int, tried: tuple[ThreadOption, ...]) -> str:
    """Half a sentence on the number of threads; empty where only one was compared."""
    if len(tried) < 2:
        return ""
    steps = {option.threads: option.step_seconds for option in tried}
    now = next((option.threads for option in tried if option.current), None)
    told = f", with {format_count(chosen, 'thread')}"
    if now is not None and chosen != now:
        return f"{told}: with {now} a step would take {format_seconds(steps[now])}"
    if steps[chosen] > min(steps.values()):
        return f"{told} as now: no other number is much faster"
    *first, last = map(str, sorted(steps))
    return f"{told}: the best of {', '.join(first)} and {last}"


def whole(parts: Sequence[PricedPart], unit: Unit, repeats: int | None) -> Mapping[str, Cost]:
    """What the whole takes on each device: of a step its predictions, of a job the totals of its parts."""
    if unit is not JOB:
        return parts[0].predictions
    found = {}
    for name, first in parts[0].predictions.items():
        rows = [(part.count, part.predictions[name]) for part in parts]
        found[name] = total(name, first.threads, rows, models=[part.model for part in parts], repeats=repeats)
    return found


def total(
    device: str, threads: int, parts: Sequence[tuple[float, Prediction]], *, models: Sequence[Hashable] = (),
    repeats: int | None = None,
) -> Cost:  # fmt: skip
    """The sum of ``parts``, pairs of how often a step runs and the step.

    Errors of the parts are taken to go the same way, which gives the widest interval: the ends of the 90 % intervals
    are added up. ``models`` tells which parts share their weights (those of equal entries; none given: all do). Parts
    share the context and the libraries, and those of one model its weights and its memory: the largest counts. Memory
    and weights of several models are added up. The whole is bounded by what bounds its longest part, and draws the mean
    power of its parts. ``repeats`` is how often the whole runs.
    """
    _, longest = max(parts, key=lambda part: part[0] * part[1].step_seconds)
    components: dict[str, float] = {}
    for count, step in parts:
        for name, seconds in step.components.items():
            components[name] = components.get(name, 0.0) + count * seconds
    model_of = list(models) or [None] * len(parts)
    needed, weights, shared = dict.fromkeys(model_of, 0), dict.fromkeys(model_of, 0.0), dict[str, float]()
    for model, (_, step) in zip(model_of, parts, strict=True):
        needed[model] = max(needed[model], step.peak_memory_bytes)
        weights[model] = max(weights[model], step.one_time.get("weights", 0.0))
        for name, seconds in step.one_time.items():
            shared[name] = max(shared.get(name, 0.0), seconds)
    if any(weights.values()):
        shared["weights"] = sum(weights.values())
    if "compilation" in shared:  # each part is a graph of its own
        shared["compilation"] = sum(step.one_time.get("compilation", 0.0) for _, step in parts)
    available = [step.available_memory_bytes for _, step in parts if step.available_memory_bytes is not None]
    room = max(available, default=None)
    seconds = sum(count * step.step_seconds for count, step in parts)
    covered = sum(count * step.step_seconds * step.coverage for count, step in parts)
    sources: dict[str, float] = {}
    for count, step in parts:
        for source, share in step.sources.items():
            sources[source] = sources.get(source, 0.0) + count * step.step_seconds * share / seconds
    joules = [count * step.step_seconds * step.watts for count, step in parts if step.watts is not None]
    found = Cost(
        device=device,
        threads=threads,
        step_seconds=seconds,
        low=sum(count * step.low for count, step in parts),
        high=sum(count * step.high for count, step in parts),
        one_time_seconds=sum(shared.values()),
        total_seconds=None,
        components=components,
        peak_memory_bytes=sum(needed.values()),
        available_memory_bytes=room,
        fits=all(step.fits for _, step in parts) and (room is None or sum(needed.values()) <= room),
        coverage=covered / seconds if seconds else 1.0,
        sources=sources,
        assumed=tuple(sorted({name for _, step in parts for name in step.assumed})),
        provenance=weakest(step.provenance for _, step in parts),
        one_time=shared,
        bounded_by=longest.bounded_by,
        watts=sum(joules) / seconds if seconds and len(joules) == len(parts) else None,
    )
    return found if repeats is None else replace(found, total_seconds=counted_seconds(found, repeats))


def shared_models(parts: Sequence[Part]) -> tuple[int, ...]:
    """A number for each part, equal for those that share a parameter or a buffer, directly or by way of others."""
    held = [
        {id(tensor) for module in part.workload.modules for tensor in (*module.parameters(), *module.buffers())}
        for part in parts
    ]
    groups = list(range(len(parts)))
    for later, own in enumerate(held):
        for earlier in range(later):
            if own & held[earlier] and groups[earlier] != groups[later]:
                kept, gone = groups[earlier], groups[later]
                groups = [kept if group == gone else group for group in groups]
    return tuple(groups)


def origin(name: str, prediction: Prediction, profile: Profile) -> str:
    """Where the numbers of a device come from, if not from a calibration of this machine; else "".

    ``profile`` is the one that is compared with.
    """
    fit = prediction.priced.fit
    if fit is None or prediction.provenance == "calibrated":
        return f"{name} is not on this machine: its numbers were measured elsewhere" if "@" in name else ""
    if not fit.gpu:
        return f"{name}: from the measurements of another CPU ({fit.reference}), scaled to this one (no calibration)"
    own = profile.name == str(profiles.default_path()) and profile.fingerprint.get("cpu") == fit.reference
    calibration = "this machine's calibration" if own else f"a calibration of {fit.reference}"
    if profile.estimated:
        calibration = "this machine's estimate"
    host = f"host speed from {calibration}" if fit.reference else "host speed typical of published measurements"
    published = prediction.provenance == "published"
    source = "from published measurements" if published else "from its data sheet and measurements of other GPUs"
    return f"{fit.gpu}: {source} (no calibration); {host}"


def described(workload: Workload, trace: Trace) -> dict[str, Any]:
    """A traced workload as plain values, for explanations and the history."""
    facts = {**workload.describe(), "mode": trace.mode}
    if workload.is_step_function:  # what it is shows when it runs
        facts["step_function"] = True
        facts["optimizer"] = trace.optimizer.lower() if trace.optimizer else None
    elif trace.mode == "infer":
        facts["optimizer"] = facts["loss"] = None
    return {**facts, "parameters": sum(p.numel for p in trace.parameters), "op_calls": len(trace.calls)}


@contextlib.contextmanager
def only_placer_errors() -> Iterator[None]:
    """The boundary of "choose never breaks a training script": pricing sees ops nobody foresaw.

    What it raises must end in a warning, not in a crash.
    """
    try:
        yield
    except PlacerError:
        raise
    except Exception as error:
        raise PlacerError(f"prediction failed with {type(error).__name__}: {first_line(error)}") from error


def workload_key(trace: Trace, workload: Workload) -> str:
    """Equal, in every process on this machine, for steps of the same ops on the same kinds of tensors.

    Another version of torch is another key, as its steps may take another time.
    """
    digest = hashlib.sha256()
    facts = (
        machine.machine_id(), torch.__version__, machine.matmul_precision(), trace.mode, trace.optimizer,
        workload.data, str(workload.autocast), trace.module_calls, *unusual_settings(),
        *filter(None, (workload.loading, workload.loop_calls, trace.compiled, workload.outputs)),
    )  # fmt: skip
    digest.update(repr(facts).encode())
    for calls in (trace.calls, *(other.calls for _, other in sorted(trace.others.items()))):
        inputs = {id(spec): spec for call in calls for spec in call.inputs}  # few: equal ones are one object
        shown = {number: f"{s.shape}{s.stride}{s.dtype}" for number, s in inputs.items()}
        for call in calls:
            # Of a step that ran, numbers may be what its values gave.
            given = tuple([a for a in call.args if type(a) is not float]) if trace.real else call.args
            line = f"{call.op}{call.phase}{given}[{', '.join([shown[id(s)] for s in call.inputs])}]"
            digest.update(line.encode())
    return digest.hexdigest()[:32]
