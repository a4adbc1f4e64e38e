"""Real step times in the place of predicted ones: timed now, or seen in earlier runs of the same workload."""

from __future__ import annotations

from dataclasses import replace

from placer.decision import observed, planning
from placer.decision.decision import decide
from placer.decision.occupied import said
from placer.decision.plans import Plan
from placer.pricing.prediction import Prediction
from placer.workload.workload import Workload


def with_race(plan: Plan, workload: Workload, measure: str) -> Plan:
    """The plan after timing the real step on the devices that compete; as it was if there is nothing to settle."""
    from placer.decision.race import race

    competing = {name: p for name, p in plan.predictions.items() if p.fits}
    if len(competing) < 2 or (measure == "unsure" and not _overlap(competing, plan.decision.device)):
        return plan
    with planning.cpu_threads(plan.predictions):
        results = race(workload, tuple(competing))
    note = "step times were measured on this machine; what they are made of is predicted"
    return replace(_corrected(plan, results, workload.steps, "measured", note), measured=True)


def with_seen(plan: Plan, steps: int | None) -> Plan:
    """The plan with what earlier runs recorded, if they did; up to date with this process's records.

    A plan that was measured stays as it is: its race was run on both sides, under equal conditions.
    """
    plan = plan.before or plan
    generation = observed.generation()
    seen = {} if plan.measured else observed.lookup(plan.key, plan.predictions)
    if not seen:
        return replace(plan, generation=generation)
    where = " and ".join(sorted(seen))
    note = f"step times on {where} were seen in earlier runs; what they are made of is predicted"
    after = _corrected(plan, seen, steps, f"seen in earlier runs on {where}", note)
    return replace(after, generation=generation, before=plan)


def _corrected(plan: Plan, seen: dict[str, observed.Seen], steps: int | None, source: str, note: str) -> Plan:
    predictions = observed.corrected(plan.predictions, seen, steps)
    decision = planning.with_threads(decide(predictions, steps), plan.decision.thread_options)
    return replace(
        plan,
        decision=said(replace(decision, reason=f"{decision.reason} ({source})"), plan.occupied),
        predictions=predictions,
        notes=(*plan.notes, note),
    )


def _overlap(competing: dict[str, Prediction], chosen: str) -> bool:
    """Whether any other interval reaches into that of the chosen device."""
    if chosen not in competing:
        return True
    return any(p.low <= competing[chosen].high for name, p in competing.items() if name != chosen)
