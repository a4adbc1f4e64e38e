"""Real step times in the place of predicted ones: timed now, or seen in earlier runs of the same workload."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import replace

import torch

from placer.decision import observed
from placer.decision.decision import decide
from placer.decision.occupied import said
from placer.decision.plan import Plan
from placer.decision.planning import with_threads
from placer.decision.race import race, shared_function
from placer.decision.threads import running_with
from placer.errors import first_line
from placer.pricing import Prediction
from placer.workload import Workload


def with_race(plan: Plan, workload: Workload, measure: str) -> Plan:
    """The plan after timing the real step on the devices that compete; as it was if there is nothing to settle.

    The same, with a note, where the copies that are timed would run what is the user's own, or cannot run.
    """
    competing = {name: p for name, p in plan.predictions.items() if p.fits}
    if len(competing) < 2 or (measure == "unsure" and not _overlap(competing, plan.decision.device)):
        return plan
    if getattr(workload.target, "_compiled_call_impl", None) is not None:  # what ``.compile()`` made, no copy has
        return _untimed(plan, "a copy would have to be compiled again")
    if (function := shared_function(workload)) is not None:
        return _untimed(plan, f"copies of the model would call {function} too")
    try:
        with _cpu_threads(plan.predictions):
            results = race(workload, tuple(competing))
    except Exception as error:  # noqa: BLE001 - the user's code, on copies and on devices it was not written for
        return _untimed(plan, f"{type(error).__name__}: {first_line(error)}")
    note = "step times were measured on this machine; what they are made of is predicted"
    return replace(_corrected(plan, results, workload.steps, "measured", note), measured=True)


def _untimed(plan: Plan, why: str) -> Plan:
    return replace(plan, notes=(*plan.notes, f"the real step was not timed: {why}"))


def with_seen(plan: Plan, steps: int | None) -> Plan:
    """The plan with what earlier runs recorded of its step, if they did.

    A plan that was measured stays as it is: its race was run on both sides, under equal conditions.
    """
    seen = {} if plan.measured else observed.lookup(plan.key, plan.predictions)
    if not seen:
        return plan
    where = " and ".join(sorted(seen))
    note = f"step times on {where} were seen in earlier runs; what they are made of is predicted"
    return _corrected(plan, seen, steps, f"seen in earlier runs on {where}", note)


def _corrected(plan: Plan, seen: dict[str, observed.Seen], steps: int | None, source: str, note: str) -> Plan:
    predictions = observed.corrected(plan.predictions, seen, steps)
    decision = with_threads(decide(predictions, steps, plan.objective), plan.decision.thread_options)
    return replace(
        plan,
        decision=said(
            replace(decision, reason=f"{decision.reason} ({source})"), (*plan.left_out, *plan.occupied)
        ),
        predictions=predictions,
        notes=(*plan.notes, note),
    )


def _overlap(competing: dict[str, Prediction], chosen: str) -> bool:
    """Whether any other interval reaches into that of the chosen device."""
    if chosen not in competing:
        return True
    return any(p.low <= competing[chosen].high for name, p in competing.items() if name != chosen)


@contextlib.contextmanager
def _cpu_threads(predictions: Mapping[str, Prediction]) -> Iterator[None]:
    """The number of threads the CPU's prediction is for, restored afterwards."""
    wanted = predictions["cpu"].threads if "cpu" in predictions else torch.get_num_threads()
    with running_with(wanted):
        yield
