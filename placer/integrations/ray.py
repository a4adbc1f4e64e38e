"""Ray: the kind of node, and the device there, on which a task or an actor finishes first.

Examples:
    >>> choice = choose_node(model, (64, 84), cluster={"m5.large": profile_of_one})
    >>> Trainer.options(**choice.options()).remote()

A node is a mapping, as ``ray.nodes()`` describes it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import ray

from placer.decision import Traced
from placer.errors import PlacerError
from placer.fleets import Fleet, Machine, cpu_class, rank, work_of
from placer.profile import Profile, catalog_name, default_threads
from placer.units import format_count, format_duration
from placer.workload import Job, Workload

T = TypeVar("T")

_ACCELERATOR = "accelerator_type:"


@dataclass(frozen=True)
class NodeChoice:
    """Where a task should run.

    ``kind`` is what the nodes are, ``nodes`` their ids; ``num_cpus`` and ``num_gpus`` what the prediction is for: Ray
    gives a task as many threads as CPUs. ``fleet`` compares all kinds. ``others``: whether there are other nodes.
    """

    kind: str
    nodes: tuple[str, ...]
    device: str
    num_cpus: int
    num_gpus: int
    reason: str
    fleet: Fleet
    others: bool

    def options(self) -> dict[str, Any]:
        """For ``task.options(**...)`` and ``Actor.options(**...)``: Ray takes any of the nodes."""
        resources: dict[str, Any] = {"num_cpus": self.num_cpus, "num_gpus": self.num_gpus}
        if self.others:
            resources["label_selector"] = {"ray.io/node-id": f"in({','.join(self.nodes)})"}
        return resources


def choose_node(
    model: Callable[..., Any] | Workload | Job | Traced,
    batch: Any = None,
    *,
    cluster: Mapping[str, Profile] | None = None,
    objective: str = "time",
    price: Mapping[str, float] | None = None,
    target: float | None = None,
    **workload: Any,
) -> NodeChoice:
    """The kind of node, and the device there, on which a step or a job is best. Nothing is run or moved.

    Each kind of node is priced once. A node without a profile is estimated: a cloud CPU with as many vCPUs as it has
    CPUs, beside the catalog's GPU of its accelerator type.

    Args:
        model: as in ``placer.explain``, or a ``Workload`` or ``Job``.
        cluster: the profiles of nodes, by name: of a node, the value of a label (its id and its instance type are
            such), or an accelerator type.
        objective: ``"time"``, ``"cost"`` (needs ``price``) or ``"energy"``.
        price: dollars per hour of a node, by the same names: ``{"g4dn.xlarge": 0.526}``.
        target: seconds within which it should be done: the cheapest that reaches it wins.
        workload: other arguments of ``placer.explain`` that say what to run.

    Raises:
        ValueError, TypeError: a wrong argument.
        PlacerError: not connected; no node can run it, or none reaches the target; no trace (TraceError).
    """
    if objective == "cost" and not price:
        raise ValueError('objective "cost" needs price, in dollars per hour: {"g4dn.xlarge": 0.526}')
    if not ray.is_initialized():
        raise PlacerError('not connected to a Ray cluster; first call: ray.init() or ray.init(address="auto")')
    kinds = kinds_of(ray.nodes(), cluster or {}, price or {})
    work = work_of(model, batch, **workload)
    fleet = rank(work, [kind.machine for kind in kinds.values()], objective=objective, target=target)
    if fleet.best is None:
        first = fleet.rows[0]
        raise PlacerError(f"no node will do: {first.device} of {first.machine} comes closest ({first.verdict})")
    kind, on_cpu = kinds[fleet.best.machine], fleet.best.device == "cpu"
    return NodeChoice(
        kind=fleet.best.machine,
        nodes=kind.nodes,
        device=fleet.best.device,
        num_cpus=kind.cpus if on_cpu else min(kind.cpus, 1),
        num_gpus=0 if on_cpu else 1,
        reason=_reason(fleet),
        fleet=fleet,
        others=len(kinds) > 1,
    )


def _reason(fleet: Fleet) -> str:
    """Why the first kind, beside the next one."""
    best, *others = fleet.rows
    unit = f"a {fleet.unit}" if fleet.count is None else format_count(fleet.count, fleet.unit)
    reason = f"{best.device} of {best.machine} takes {format_duration(best.seconds)} for {unit} ({best.provenance})"
    if others:
        reason += f": {best.verdict}; next comes {others[0].device} of {others[0].machine}: {others[0].verdict}"
    return reason


@dataclass(frozen=True)
class Kind:
    """Nodes that are priced alike, by their ids: the machine that they are, and the CPUs to ask for on one of them."""

    machine: Machine
    nodes: tuple[str, ...]
    cpus: int


def kinds_of(
    nodes: Sequence[Mapping[str, Any]], profiles: Mapping[str, Profile], prices: Mapping[str, float]
) -> dict[str, Kind]:
    """The kinds of nodes that take work, by their names.

    Raises ValueError for a price or a profile that fits no node, PlacerError where no node takes work.
    """
    alike: dict[Hashable, list[Mapping[str, Any]]] = {}
    for node in nodes:
        cpus, has_gpu, accelerator = _offered(node)
        if node["Alive"] and (cpus or has_gpu):
            key = (id(_called(node, profiles)), _called(node, prices), cpus, has_gpu, accelerator)
            alike.setdefault(key, []).append(node)
    if not alike:
        raise PlacerError("no node of the cluster is alive and takes tasks that ask for a CPU or a GPU")
    for by_name in (profiles, prices):
        if by_name and all(_called(members[0], by_name) is None for members in alike.values()):
            named = ", ".join(map(repr, by_name))
            raise ValueError(f"no node is called {named}: give the name of a node, a label or an accelerator type")
    kinds: dict[str, Kind] = {}
    for members in alike.values():
        kind = _kind(members, _called(members[0], profiles), _called(members[0], prices))
        name = kind.machine.name
        if name in kinds:
            name = f"{name} #{len(kinds) + 1}"
        kinds[name] = replace(kind, machine=replace(kind.machine, name=name))
    return kinds


def _offered(node: Mapping[str, Any]) -> tuple[int, bool, str]:
    """The CPUs that tasks on a node may ask for, whether there is a GPU, and its accelerator's type ("" for none)."""
    resources = node["Resources"]
    types = (name.removeprefix(_ACCELERATOR) for name in resources if name.startswith(_ACCELERATOR))
    return int(resources.get("CPU", 0)), resources.get("GPU", 0) >= 1, next(types, "")


def _called(node: Mapping[str, Any], by_name: Mapping[str, T]) -> T | None:
    """What is known of a node by one of its names."""
    names = (node["NodeManagerHostname"], *node["Labels"].values(), _offered(node)[-1])
    return next((by_name[name] for name in names if name in by_name), None)


def _kind(nodes: Sequence[Mapping[str, Any]], measured: Profile | None, dollars: float | None) -> Kind:
    """Nodes that are alike. Their profile ``measured`` is None where none of them was calibrated."""
    cpus, has_gpu, accelerator = _offered(nodes[0])
    profile = cpu_class(max(cpus, 1)) if measured is None else measured
    threads = default_threads(profile) or max(profile.threads("cpu"), default=1)
    if 0 < cpus < threads:  # fewer than torch would start threads: a task gets as many threads as CPUs
        profile = replace(profile, fingerprint={**profile.fingerprint, "threads": cpus})
    gpu = catalog_name(accelerator.replace("-", " ")) if has_gpu and accelerator and measured is None else ""
    name = f"{profile.fingerprint.get('cpu')}, {format_count(cpus, 'CPU')}"
    if has_gpu:
        name = f"{gpu or accelerator or 'a GPU'} + {name}"
    described = Machine(name, profile, gpu, price=dollars, count=len(nodes))
    offered = tuple(device for device, _ in described.sources if (cpus if device == "cpu" else has_gpu))
    ids = tuple(node["NodeID"] for node in nodes)
    return Kind(replace(described, devices=offered), ids, min(cpus, threads))
