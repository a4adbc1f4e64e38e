"""Plans: one step traced and priced on every device that is compared, the decision, and what explains it later."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from placer import machine, tracing
from placer import profile as profiles
from placer.decision import threads as thread_counts
from placer.decision.comparison import Comparison, Prices, unusual_settings
from placer.decision.decision import Decision, decide
from placer.decision.objective import TIME, Objective
from placer.decision.split import is_split
from placer.decision.threads import ThreadOption
from placer.errors import PlacerError, first_line
from placer.pricing import Prediction
from placer.profile import Profile
from placer.tracing import OpCall, Trace
from placer.workload import Workload, describe_workload


@dataclass(frozen=True)
class Plan:
    """A decision and everything needed to explain it later; holds no reference to the model.

    ``key`` names the step in the history. ``measured`` tells that the real step was timed for this plan. ``occupied``
    says which devices other jobs kept busy (see ``occupied.py``), ``left_out`` which cannot be used.
    """

    decision: Decision
    predictions: Mapping[str, Prediction]
    workload: Mapping[str, Any]
    profile: Profile
    notes: tuple[str, ...] = ()
    key: str = ""
    measured: bool = False
    occupied: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    objective: Objective = TIME


#: Share of the time from which on a device counts as busy: a desktop that is drawn stays below.
BUSY = 0.5


def occupied(devices: Iterable[str]) -> tuple[str, ...]:
    """A sentence for every accelerator that other processes keep busy, as far as that can be told without a context.

    One that this process uses already is left out: its own work cannot be told from that of others.
    """
    found = []
    for device in devices:
        elsewhere = "@" in device or is_split(device)  # of another machine, or said of its accelerator
        if elsewhere or machine.split_device(device)[0] == "cpu" or machine.has_context(device):
            continue
        share = machine.utilization(device)
        if share is not None and share >= BUSY:
            found.append(f"{device} is {share:.0%} busy with other jobs, and predicted as if it were free")
    return tuple(found)


def said(decision: Decision, told: Sequence[str]) -> Decision:
    """The decision with those sentences in its reason."""
    return replace(decision, reason="; ".join((decision.reason, *told)))


def with_occupied(plan: Plan) -> Plan:
    """The plan with what is occupied now, in its notes and in the reason of its decision."""
    told = occupied(plan.predictions)
    return replace(plan, decision=said(plan.decision, told), notes=(*plan.notes, *told), occupied=told)


def decided(workload: Workload, trace: Trace, comparison: Comparison, prices: Prices) -> Plan:
    """The plan for a step that was traced and priced."""
    predictions, profile = prices.predictions, comparison.profile
    elsewhere = (told for name, found in predictions.items() if (told := origin(name, found, profile)))
    left_out = tuple(f"{name} is left out: {why}" for name, why in comparison.without(trace).items())
    return Plan(
        decision=said(with_threads(decide(predictions, workload.steps, comparison.objective), prices.tried), left_out),
        predictions=predictions,
        workload=described(workload, trace),
        profile=profile,
        notes=(*comparison.notes, *left_out, *elsewhere, *profiles.notes(profile)),
        key=workload_key(trace, workload),
        left_out=left_out,
        objective=comparison.objective,
    )


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
    host = f"host speed from {calibration}" if fit.reference else "host speed as usual in published measurements"
    published = prediction.provenance == "published"
    source = "from published measurements" if published else "from its data sheet and measurements of other GPUs"
    return f"{fit.gpu}: {source} (no calibration); {host}"


def with_threads(decision: Decision, tried: tuple[ThreadOption, ...]) -> Decision:
    """The decision with the numbers of threads that were compared, and a word on them where the CPU was chosen."""
    if not tried:
        return decision
    said = thread_counts.reason(decision.threads, tried) if decision.device == "cpu" else ""
    return dataclasses.replace(decision, thread_options=tried, reason=decision.reason + said)


def described(workload: Workload, trace: Trace) -> dict[str, Any]:
    """A traced workload as plain values, for explanations and the history."""
    facts = {**describe_workload(workload), "mode": trace.mode}
    if workload.is_step_function:  # what it is shows when it runs
        facts["optimizer"] = trace.optimizer.lower() if trace.optimizer else None
    elif trace.mode == "infer":
        facts["optimizer"] = facts["loss"] = None
    return {**facts, "parameters": sum(p.numel for p in trace.parameters), "op_calls": len(trace.calls)}


def make_plan(workload: Workload, comparison: Comparison) -> Plan:
    """Trace one step, price it on every device, decide. Raises TraceError, ProfileError, or another PlacerError."""
    with only_placer_errors():
        traced = tracing.trace(workload)
        return decided(workload, traced, comparison, comparison.price(traced, workload))


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
        raise PlacerError(f"pricing failed with {type(error).__name__}: {first_line(error)}") from error


def workload_key(trace: Trace, workload: Workload) -> str:
    """Equal, in every process on this machine, for steps of the same ops on the same kinds of tensors.

    Another version of torch is another key, as its steps may take another time.
    """
    digest = hashlib.sha256()
    facts = (
        machine.machine_id(), torch.__version__, machine.matmul_precision(), trace.mode, trace.optimizer,
        workload.data, str(workload.autocast), trace.module_calls, *unusual_settings(),
        *filter(None, (workload.loading, workload.loop_calls, trace.compiled)),
    )  # fmt: skip
    digest.update(repr(facts).encode())
    for calls in (trace.calls, *(other.calls for _, other in sorted(trace.others.items()))):
        inputs = {id(spec): spec for call in calls for spec in call.inputs}  # few: equal ones are one object
        shown = {number: f"{s.shape}{s.stride}{s.dtype}" for number, s in inputs.items()}
        lines = (f"{c.op}{c.phase}{_given(c, trace)}[{', '.join([shown[id(s)] for s in c.inputs])}]" for c in calls)
        digest.update("".join(lines).encode())
    return digest.hexdigest()[:32]


def _given(call: OpCall, trace: Trace) -> tuple[Hashable, ...]:
    """The arguments of a call; of a step that ran, without numbers that its values may have given."""
    return tuple([a for a in call.args if type(a) is not float]) if trace.real else call.args
