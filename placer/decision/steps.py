"""The steps of a model or a job, each traced once: all that does not depend on where they run."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from placer import machine, tracing
from placer.decision.candidates import unpredicted_settings
from placer.decision.objective import JOB, STEP, Unit
from placer.decision.obstacles import Obstacles
from placer.errors import TraceError
from placer.lazy import cached_property
from placer.nest import tensors
from placer.pricing import family_of
from placer.tracing import Trace
from placer.workload import Job, Part, Workload


@dataclass(frozen=True)
class StepIdentity:
    """What a step is known by in the history, in every process on this machine.

    ``step`` is equal for steps of the same ops on the same kinds of tensors, ``network`` for those of one network in
    one mode on inputs of any sizes. ``batch`` is the first size that all inputs share, None where there is none;
    ``inputs`` are shape and dtype of the first input.
    """

    step: str = ""
    network: str = ""
    batch: int | None = None
    inputs: str = ""


@dataclass(frozen=True)
class TracedPart:
    """One kind of step: what it is called, how often it runs, and its ops. ``model`` is equal where weights are shared.

    ``facts`` are the step as plain values, ``identity`` names it in the history.
    """

    name: str
    count: float
    workload: Workload
    trace: Trace
    facts: Mapping[str, Any]
    identity: StepIdentity
    model: int = 0


@dataclass(frozen=True)
class Traced:
    """A step or a job, traced. ``repeats`` is how often it runs (None: a long run)."""

    parts: tuple[TracedPart, ...]
    repeats: int | None
    unit: Unit
    facts: Mapping[str, Any]

    @property
    def modules(self) -> tuple[nn.Module, ...]:
        """The modules that run, those that parts share more than once."""
        return tuple(module for part in self.parts for module in part.workload.modules)

    @cached_property
    def obstacles(self) -> Obstacles:
        """What stands in the way of running all parts."""
        steps = [part.workload for part in self.parts]
        optimizers = [step.optimizer for step in steps if isinstance(step.optimizer, torch.optim.Optimizer)]
        return Obstacles(self.modules, optimizers, [part.trace for part in self.parts])


def trace_parts(work: Workload | Job | Traced) -> Traced:
    """Trace every step of a workload or a job, unless it was. Raises TraceError, which names the part."""
    if isinstance(work, Traced):
        return work
    if isinstance(work, Workload):
        return traced_step(work, tracing.trace(work))
    parts: list[TracedPart] = []
    for part, model in zip(work.parts, shared_models(work.parts), strict=True):
        try:
            trace = tracing.trace(part.workload)
        except TraceError as error:
            raise TraceError(f"part {part.name!r}: {error}") from error
        parts.append(_traced_part(part.name, part.count, part.workload, trace, model))
    facts: dict[str, Any] = {
        "target": "job",
        "mode": "train" if any(part.trace.mode == "train" for part in parts) else "infer",
        "inputs": [],
        "optimizer": None,
        "steps": work.repeats,
        "parts": {part.name: part.count for part in parts},
        "op_calls": round(sum(part.count * len(part.trace.calls) for part in parts)),
    }
    return Traced(tuple(parts), work.repeats, JOB, facts)


def traced_step(workload: Workload, trace: Trace) -> Traced:
    """A single step that was traced."""
    part = _traced_part("", 1, workload, trace, 0)
    return Traced((part,), workload.steps, STEP, part.facts)


def _traced_part(name: str, count: float, workload: Workload, trace: Trace, model: int) -> TracedPart:
    return TracedPart(name, count, workload, trace, described(workload, trace), identity_of(workload, trace), model)


def shared_models(parts: Sequence[Part]) -> list[int]:
    """A number for each part, equal for those that share a parameter or a buffer, directly or by way of others."""
    tensors: list[set[int]] = []
    models: list[int] = []
    for number, part in enumerate(parts):
        ours: set[int] = set()
        for module in part.workload.modules:
            ours.update(id(tensor) for tensor in (*module.parameters(), *module.buffers()))
        shared = {models[earlier] for earlier in range(number) if tensors[earlier] & ours}
        models = [*(number if model in shared else model for model in models), number]
        tensors.append(ours)
    return models


def described(workload: Workload, trace: Trace) -> dict[str, Any]:
    """A traced workload as plain values, for explanations and the history."""
    facts = {**workload.describe(), "mode": trace.mode}
    if workload.is_step_function:  # what it is shows when it runs
        facts["step_function"] = True
        facts["optimizer"] = trace.optimizer.lower() if trace.optimizer else None
    elif trace.mode == "infer":
        facts["optimizer"] = facts["loss"] = None
    return {**facts, "parameters": sum(p.numel for p in trace.parameters), "op_calls": len(trace.calls)}


def batch_size(workload: Workload) -> int | None:
    """The first size that every input tensor shares; None where they have none in common."""
    return common_size((workload.args, workload.kwargs)) or None


def common_size(batch: Any) -> int | None:
    """The first size that every tensor in a nest shares; None where they have none in common."""
    sizes = {None if tensor.is_nested or not tensor.dim() else tensor.shape[0] for tensor in tensors(batch)}
    return sizes.pop() if len(sizes) == 1 else None


def identity_of(workload: Workload, trace: Trace) -> StepIdentity:
    """What a traced step is known by in the history."""
    inputs = workload.describe_inputs()
    first = inputs[0] if inputs else ""
    return StepIdentity(_step_key(workload, trace), _network_key(workload, trace), batch_size(workload), first)


def _setting(workload: Workload, trace: Trace) -> tuple[Any, ...]:
    """What changes the time of every step. Another version of torch is another setting."""
    return (
        machine.machine_id(),
        torch.__version__,
        machine.matmul_precision(),
        machine.tf32(),
        trace.mode,
        trace.optimizer,
        workload.data,
        workload.outputs,
        str(workload.autocast),
        trace.compiled,
        *unpredicted_settings(),
    )


def _step_key(workload: Workload, trace: Trace) -> str:
    """Of all that is called, with shapes, strides and dtypes."""
    facts = (*_setting(workload, trace), trace.module_calls, workload.loading, workload.loop_calls)
    digest = hashlib.sha256(repr(facts).encode())
    for calls in (trace.calls, *(other.calls for _, other in sorted(trace.others.items()))):
        inputs = {id(spec): spec for call in calls for spec in call.inputs}  # few: equal ones are one object
        shown = {number: f"{s.shape}{s.stride}{s.dtype}" for number, s in inputs.items()}
        for call in calls:
            # Of a step that ran, numbers may be what its values gave.
            args = tuple([a for a in call.args if type(a) is not float]) if trace.real else call.args
            line = f"{call.op}{call.phase}{args}[{', '.join([shown[id(s)] for s in call.inputs])}]"
            digest.update(line.encode())
    return digest.hexdigest()[:32]


def _network_key(workload: Workload, trace: Trace) -> str:
    """Of the weights, and of the families of the ops that run forward: single ops, and how many, differ between sizes.

    The loss does not count, as who watches a script does not see it.
    """
    facts = (*_setting(workload, trace), workload.loading is None)
    weights = [(spec.shape, spec.dtype) for spec in (*trace.parameters, *trace.buffers)]
    families = {str(family_of(call.op)) for call in trace.calls if call.phase == "forward" and not call.view}
    return hashlib.sha256(repr((facts, weights, sorted(families))).encode()).hexdigest()[:32]
