"""The steps of a model or a job, each traced once: all that does not depend on where they run."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from placer import machine, tracing
from placer.decision.candidates import unusual_settings
from placer.decision.objective import JOB, STEP, Unit
from placer.decision.obstacles import Obstacles
from placer.errors import TraceError
from placer.lazy import cached_property
from placer.tracing import Trace
from placer.workload import Job, Part, Workload


@dataclass(frozen=True)
class TracedPart:
    """One kind of step: what it is called, how often it runs, and its ops. ``model`` is equal where weights are shared.

    ``facts`` are the step as plain values, ``key`` names it in the history.
    """

    name: str
    count: float
    workload: Workload
    trace: Trace
    facts: Mapping[str, Any]
    key: str
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


def trace_parts(work: Workload | Job) -> Traced:
    """Trace every step of a workload or a job. Raises TraceError, which names the part."""
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
    part = _traced_part("", 1, workload, trace)
    return Traced((part,), workload.steps, STEP, part.facts)


def _traced_part(name: str, count: float, workload: Workload, trace: Trace, model: int = 0) -> TracedPart:
    facts, key = described(workload, trace), workload_key(trace, workload)
    return TracedPart(name, count, workload, trace, facts, key, model)


def shared_models(parts: Sequence[Part]) -> tuple[int, ...]:
    """A number for each part, equal for those that share a parameter or a buffer, directly or by way of others."""
    tensors = [
        {id(tensor) for module in part.workload.modules for tensor in (*module.parameters(), *module.buffers())}
        for part in parts
    ]
    groups = list(range(len(parts)))
    for later in range(len(parts)):
        for earlier in range(later):
            if tensors[later] & tensors[earlier] and groups[earlier] != groups[later]:
                merged, into = groups[later], groups[earlier]
                groups = [into if group == merged else group for group in groups]
    return tuple(groups)


def described(workload: Workload, trace: Trace) -> dict[str, Any]:
    """A traced workload as plain values, for explanations and the history."""
    facts = {**workload.describe(), "mode": trace.mode}
    if workload.is_step_function:  # what it is shows when it runs
        facts["step_function"] = True
        facts["optimizer"] = trace.optimizer.lower() if trace.optimizer else None
    elif trace.mode == "infer":
        facts["optimizer"] = facts["loss"] = None
    return {**facts, "parameters": sum(p.numel for p in trace.parameters), "op_calls": len(trace.calls)}


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
            args = tuple([a for a in call.args if type(a) is not float]) if trace.real else call.args
            line = f"{call.op}{call.phase}{args}[{', '.join([shown[id(s)] for s in call.inputs])}]"
            digest.update(line.encode())
    return digest.hexdigest()[:32]
