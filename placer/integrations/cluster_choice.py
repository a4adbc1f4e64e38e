"""Which of a cluster's nodes should run a workload or a job: each kind is priced once, however many nodes there are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from placer.errors import PlacerError
from placer.fleets import Fleet, Traced, compare
from placer.integrations.cluster_nodes import Cluster, Group, Node
from placer.units import format_count, format_duration
from placer.workload import Job, Workload, make_workload

NODE_ID = "ray.io/node-id"


def best_group(
    cluster: Cluster, what: Callable[..., Any] | Workload | Job | Traced, batch_shape: Any, objective: str,
    price: Mapping[str, float] | None, target: float | None, workload: Mapping[str, Any],
) -> tuple[Group, Fleet]:  # fmt: skip
    """The nodes that are best for it, and all kinds in order.

    Raises ValueError or TypeError for a wrong argument; PlacerError where no node takes work, it fits on none, or none
    reaches the target; TraceError.
    """
    if isinstance(what, (Workload, Job, Traced)):
        if batch_shape is not None or workload:
            given = ", ".join(["batch_shape"] * (batch_shape is not None) + sorted(workload))
            raise ValueError(f"a {type(what).__name__} says what to run already: leave out {given}")
    else:
        what = make_workload(what, batch_shape, **workload)
    groups = cluster.groups(price)
    if not groups:
        raise PlacerError("no node of the cluster is alive and takes tasks that ask for a CPU or a GPU")
    named = {group.machine.name: group for group in groups}
    fleet = compare(what, [group.machine for group in groups], objective=objective, target=target)
    if fleet.best is None:
        first = fleet.rows[0]
        raise PlacerError(f"no node will do: {first.device} of {first.machine} comes closest ({first.verdict})")
    return named[fleet.best.machine], fleet


def reason(fleet: Fleet, nodes: int, free: int | None) -> str:
    """Why the first kind, beside the next one."""
    best, *others = fleet.rows
    unit = f"a {fleet.unit}" if fleet.count is None else format_count(fleet.count, fleet.unit)
    told = f"{best.device} of {best.machine} takes {format_duration(best.seconds)} for {unit}"
    told += "" if best.provenance == "calibrated" else f", an estimate ({best.provenance})"
    told += f": {best.verdict}" if others else ""
    told += f"; next comes {others[0].device} of {others[0].machine}: {others[0].verdict}" if others else ""
    count = f"{nodes:,} node{'s' * (nodes != 1)} of that kind"
    room = "" if free is None else f", {free:,} with room now" if free else ", none with room now: the work waits"
    return f"{told} ({count}{room})"


def selector(chosen: Sequence[Node], others: Sequence[Node]) -> dict[str, str] | None:
    """The fewest labels that all chosen nodes have, and no other has all of; {} without others, None where none do."""
    if not others:
        return {}
    common = {key: value for key, value in chosen[0].labels.items() if key != NODE_ID and value}
    for node in chosen[1:]:
        common = {key: value for key, value in common.items() if node.labels.get(key) == value}
    if not _singles_out(common, others):
        return None
    for key in sorted(common):
        fewer = {k: v for k, v in common.items() if k != key}
        if fewer and _singles_out(fewer, others):
            common = fewer
    return common


def _singles_out(labels: Mapping[str, str], others: Sequence[Node]) -> bool:
    items = labels.items()
    return bool(labels) and not any(items <= node.labels.items() for node in others)
