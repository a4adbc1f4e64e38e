"""Priced devices -> Plan: the decision, and what explains it."""

from __future__ import annotations

import dataclasses
from typing import Any

from placer import profile as profiles
from placer.decision import threads as thread_counts
from placer.decision.comparison import Comparison, Prices
from placer.decision.decision import Decision, decide
from placer.decision.observed import workload_key
from placer.decision.occupied import said
from placer.decision.plan import Plan
from placer.decision.threads import ThreadOption
from placer.pricing import Prediction
from placer.profile import Profile
from placer.tracing import Trace
from placer.workload import Workload, describe_workload


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
