"""Accelerators that other jobs keep busy: predictions are for one that is free, and a reader has to know."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from placer import machine
from placer.decision.decision import Decision
from placer.decision.plan import Plan
from placer.decision.split import is_split

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
