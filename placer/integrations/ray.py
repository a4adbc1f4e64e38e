"""Ray: profiles of the nodes of a cluster, and the node and device on which a task or an actor finishes first.

>>> calibrate(budget=60, each="kind")  # one node of each kind
>>> choice = choose_node(model, (64, 84))
>>> Trainer.options(**choice.options()).remote()
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from placer.errors import PlacerError
from placer.fleets import Fleet, Traced
from placer.integrations import collected
from placer.integrations.cluster_choice import best_group, reason, selector
from placer.integrations.cluster_nodes import Cluster, Group, Node
from placer.integrations.ray_tasks import DIED, ask_nodes
from placer.workload import Job, Workload, check_choice, check_devices

__all__ = ["Cluster", "Group", "Node", "NodeChoice", "calibrate", "choose_node", "nodes"]

#: Seconds in which a node says what it is: a process that imports torch, on a busy node.
_ASKING = 120.0
#: Ray's first version with ``label_selector``.
_LABELS = (2, 49)
#: Ids of nodes that ``calibrate`` found gone. Ray lists them as alive for some seconds more. None comes back: a node
#: that is started again has another id.
_gone: set[str] = set()


def calibrate(
    *, budget: float = 60.0, devices: Iterable[str] | str | None = None, each: str = "node",
    timeout: float | None = None, force: bool = False,
) -> Cluster:  # fmt: skip
    """Calibrate the nodes of the cluster that this process is connected to, all at once, and keep their profiles here.

    Each node measures itself in a process of its own, as ``placer calibrate`` would there, and keeps its profile too.
    What another task on the node does meanwhile disturbs it; the profile then says that the machine was contended.
    Nodes that could not be calibrated are named with the reason in ``Cluster.failed``.

    Args:
        budget: seconds of measuring on a node.
        devices: of every node; None: all that it has.
        each: ``"kind"`` asks every node what it is, and calibrates one node of each kind of which no profile is kept;
            ``"node"`` has every node calibrate itself.
        timeout: seconds for a node; None: enough for the budget and for fitting.
        force: calibrate also where there is a profile that holds.

    Raises:
        ValueError, TypeError: a wrong argument.
        PlacerError: this process is not connected to a cluster.
    """
    check_choice("each", each, ("kind", "node"))
    for name, value in (("budget", budget), *((("timeout", timeout),) if timeout is not None else ())):
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0.0 < value < math.inf:
            raise ValueError(f"{name} must be a number of seconds above 0, not {value!r}")
    checked = check_devices(devices)
    asked = [node for node in _listed() if node.works]
    request = {"budget": float(budget), "devices": checked and list(checked), "force": force}
    found: dict[str, str] = {}

    def take(node: Node, answer: Mapping[str, Any]) -> None:
        found[node.id] = kind = collected.kind_of(answer["fingerprint"])
        if "profile" in answer:
            collected.keep(kind, answer["profile"], newest=force)

    patience = 3.0 * budget + _ASKING if timeout is None else float(timeout)
    if each == "node":
        failed = ask_nodes(asked, request, patience, take)
    else:
        failed = ask_nodes(asked, {"measure": False}, min(patience, _ASKING), take)
        known = {node.id: node for node in asked if node.id in found}
        left, done = dict(found), set[str]()
        while wanted := collected.to_measure(left, force):  # where a node fails, the next one of its kind is asked
            failed |= ask_nodes([known[node] for node in wanted], request, patience, take)
            done |= {found[node] for node in wanted if node not in failed}
            left = {node: kind for node, kind in found.items() if node not in failed and kind not in done}
    collected.remember(found)
    _gone.update(node for node, why in failed.items() if why == DIED)
    return replace(nodes(), failed=failed)


def nodes() -> Cluster:
    """The nodes of the cluster and what was collected of them before. Nothing is measured, no node is asked.

    A node that ``calibrate`` found gone counts as dead, even where Ray has not noticed yet.

    Raises:
        PlacerError: this process is not connected to a cluster.
    """
    known = collected.kinds()
    listed = tuple(replace(node, kind=known.get(node.id, "")) for node in _listed())
    found = {kind: collected.kept(kind) for kind in dict.fromkeys(node.kind for node in listed if node.kind)}
    return Cluster(listed, {kind: profile for kind, profile in found.items() if profile is not None})


@dataclass(frozen=True)
class NodeChoice:
    """Where a task should run.

    ``kind`` is what the nodes are, ``nodes`` their ids, those with room now first; ``device`` the device there,
    ``num_cpus`` and ``num_gpus`` what the prediction is for: Ray gives a task as many threads as CPUs. ``fleet`` is the
    comparison with all other kinds.
    """

    kind: str
    nodes: tuple[str, ...]
    device: str
    num_cpus: int
    num_gpus: int
    reason: str
    fleet: Fleet
    label_selector: Mapping[str, str] | None = None

    def options(self) -> dict[str, Any]:
        """For ``task.options(**...)`` and ``Actor.options(**...)``.

        By labels where they single the kind out, so that Ray takes any node of it; else the first of the nodes. Where
        all nodes are of the kind, only what to ask for.
        """
        asked: dict[str, Any] = {"num_cpus": self.num_cpus, "num_gpus": self.num_gpus}
        if self.label_selector is None:
            return {**asked, "scheduling_strategy": NodeAffinitySchedulingStrategy(self.nodes[0], soft=False)}
        return {**asked, "label_selector": dict(self.label_selector)} if self.label_selector else asked


def choose_node(
    model: Callable[..., Any] | Workload | Job | Traced, batch_shape: Any = None, *, cluster: Cluster | None = None,
    objective: str = "time", price: Mapping[str, float] | None = None, target: float | None = None, **workload: Any,
) -> NodeChoice:  # fmt: skip
    """The kind of node, and the device there, on which a step or a job is best. Nothing is run or moved.

    Each kind of node is priced once, however many nodes there are. One that was never calibrated counts as an estimate.

    Args:
        model: as in ``placer.explain``, or a ``Workload`` or ``Job``.
        cluster: from ``nodes`` or ``calibrate``; None: what is known now.
        objective: ``"time"``, ``"cost"`` (needs ``price``) or ``"energy"``.
        price: dollars per hour of a node by its name, label, kind or accelerator type: see ``Cluster.groups``.
        target: seconds within which it should be done: the cheapest that reaches it wins.
        workload: other arguments of ``placer.explain`` that say what to run.

    Raises:
        ValueError, TypeError: a wrong argument.
        PlacerError: not connected; no node can run it, or none reaches the target; no trace (TraceError).
    """
    if objective == "cost" and not price:
        raise ValueError('objective "cost" needs price, in dollars per hour: {"g4dn.xlarge": 0.526}')
    known = nodes() if cluster is None else cluster
    group, fleet = best_group(known, model, batch_shape, objective, price, target, workload)
    device = fleet.rows[0].device
    on_cpu = device.startswith("cpu")
    cpus, gpus = (group.cpus, 0) if on_cpu else (min(group.nodes[0].cpus, 1), 1)
    free = [node.id for node in group.nodes if node.has_room(cpus, gpus)]
    ids = tuple(dict.fromkeys([*free, *(node.id for node in group.nodes)]))
    chosen = set(ids)
    others = [node for node in known.nodes if node.works and node.id not in chosen]
    labels = selector(group.nodes, others)
    can_select = tuple(int(part) for part in ray.__version__.split(".")[:2]) >= _LABELS
    told = reason(fleet, len(ids), None if group.nodes[0].free is None else len(free))
    return NodeChoice(
        group.machine.name, ids, device, cpus, gpus, told, fleet, labels if can_select or not labels else None
    )


def _listed() -> list[Node]:
    """The nodes that Ray knows of, dead ones too."""
    if not ray.is_initialized():
        raise PlacerError('not connected to a Ray cluster; first call: ray.init() or ray.init(address="auto")')
    free = _free()
    return [
        Node(
            id=str(found["NodeID"]), name=str(found.get("NodeManagerHostname") or found.get("NodeName")),
            address=str(found.get("NodeManagerAddress")), labels=found.get("Labels") or {},
            resources=found.get("Resources") or {}, alive=bool(found["Alive"]) and str(found["NodeID"]) not in _gone,
            free=None if free is None else free.get(str(found["NodeID"]), {}),
        )
        for found in ray.nodes()
    ]  # fmt: skip


def _free() -> dict[str, dict[str, float]] | None:
    """What is free on each node; None where this Ray does not say: the function is no public one."""
    try:
        found: dict[str, dict[str, float]] = ray._private.state.available_resources_per_node()
    except Exception:  # noqa: BLE001 - whatever another version does: it only orders the nodes
        return None
    return found
