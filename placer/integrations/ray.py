"""Ray: profiles of the nodes of a cluster, and the node and device on which a task or an actor finishes first.

>>> cluster = calibrate(budget=60)  # one node of each kind
>>> choice = choose_node(model, (64, 84), cluster=cluster)
>>> Trainer.options(**choice.options()).remote()
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from placer import machine
from placer.decision import Traced
from placer.errors import PlacerError, UnknownGPU, first_line
from placer.fleets import Fleet, Machine, cpu_class, rank, work_of
from placer.profile import Profile, default_path, default_threads, find_gpu, load_cached
from placer.units import format_count, format_duration
from placer.workload import Job, Workload

#: Seconds to start a worker on a busy node and to import torch there.
_STARTING = 150.0
#: Ray's first version with ``label_selector``.
_LABELS = (2, 49)
_ACCELERATOR = "accelerator_type:"
#: What makes another kind of machine. Threads are not among it: Ray sets them by the CPUs that a task asks for.
_KIND = ("cpu", "cpu_version", "cpu_instructions", "cores", "torch")
#: The environment of placer's tasks: Ray would hide all accelerators from a task that asks for none.
ENVIRONMENT = {
    "RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES": "1",
    "RAY_EXPERIMENTAL_NOSET_HIP_VISIBLE_DEVICES": "1",
    "RAY_EXPERIMENTAL_NOSET_ROCR_VISIBLE_DEVICES": "1",
    "RAY_EXPERIMENTAL_NOSET_ONEAPI_DEVICE_SELECTOR": "1",
    "RAY_EXPERIMENTAL_NOSET_ZE_AFFINITY_MASK": "1",
}


@dataclass(frozen=True)
class Node:
    """One node, as Ray describes it.

    ``resources`` are what tasks may ask for (``"CPU"``, ``"GPU"``, ...). ``kind`` is what it has in common with others,
    empty where it was not asked what it is.
    """

    id: str
    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    resources: Mapping[str, float] = field(default_factory=dict)
    alive: bool = True
    kind: tuple[str, ...] = ()

    @property
    def cpus(self) -> int:
        return int(self.resources.get("CPU", 0))

    @property
    def gpus(self) -> int:
        return int(self.resources.get("GPU", 0))

    @property
    def works(self) -> bool:
        """Whether it is alive and takes tasks that ask for a CPU or a GPU."""
        return self.alive and bool(self.cpus or self.gpus)

    @property
    def accelerator(self) -> str:
        """The type of its accelerator as Ray calls it; "" for none."""
        types = (name.removeprefix(_ACCELERATOR) for name in self.resources if name.startswith(_ACCELERATOR))
        return next(types, "")

    def price(self, prices: Mapping[str, float]) -> float | None:
        """Its dollars per hour: see ``choose_node``."""
        names = (self.name, *self.labels.values(), self.accelerator)
        return next((float(prices[name]) for name in names if name in prices), None)


@dataclass(frozen=True, eq=False)
class Group:
    """Nodes that are priced alike: the machine that they are, and the CPUs that a task on it should ask for."""

    machine: Machine
    nodes: tuple[Node, ...]
    cpus: int


@dataclass(frozen=True)
class Cluster:
    """The nodes of a cluster, the profiles of their kinds, and why a node could not be calibrated, by its id."""

    nodes: tuple[Node, ...]
    profiles: Mapping[tuple[str, ...], Profile] = field(default_factory=dict)
    failed: Mapping[str, str] = field(default_factory=dict)

    def groups(self, price: Mapping[str, float] | None = None) -> list[Group]:
        """The nodes that take work, by kind and price (see ``choose_node``).

        One that was never calibrated is priced as a cloud CPU with as many vCPUs as it has CPUs, beside the catalog's
        GPU of its accelerator type.

        Raises ValueError for a price that fits no node, or is not above 0.
        """
        working = [node for node in self.nodes if node.works]
        prices = {node.id: node.price(price or {}) for node in working}
        if price and working and all(dollars is None for dollars in prices.values()):
            raise ValueError(
                f"no node is called {', '.join(map(repr, price))}: give prices by name, label or accelerator type"
            )
        alike: dict[Hashable, list[Node]] = {}
        for node in working:
            kind = node.kind if node.kind in self.profiles else node.accelerator
            alike.setdefault((kind, node.cpus, bool(node.gpus), prices[node.id]), []).append(node)
        groups: list[Group] = []
        names: Counter[str] = Counter()
        for nodes in alike.values():
            group = _group(nodes, self.profiles.get(nodes[0].kind), prices[nodes[0].id])
            name = group.machine.name
            names[name] += 1
            if names[name] > 1:
                group = replace(group, machine=replace(group.machine, name=f"{name} #{names[name]}"))
            groups.append(group)
        return groups

    def __str__(self) -> str:
        lines = []
        for group in self.groups():
            node = group.nodes[0]
            resources = f"{format_count(node.cpus, 'CPU')}, {format_count(node.gpus, 'GPU')} each"
            lines.append(
                f"{format_count(len(group.nodes), 'node')}, {resources}: {group.machine.name}, {group.machine.note}"
            )
        names = {node.id: node.name for node in self.nodes}
        lines += [f"{names.get(node, '?')} ({node[:8]}) failed: {why}" for node, why in self.failed.items()]
        return "\n".join(lines)


def _group(nodes: Sequence[Node], measured: Profile | None, price: float | None) -> Group:
    """Nodes that are alike. Their profile ``measured`` is None where none of them was calibrated."""
    node = nodes[0]
    profile = cpu_class(max(node.cpus, 1)) if measured is None else measured
    threads = default_threads(profile) or max(profile.threads("cpu"), default=1)
    cpus = min(node.cpus, threads)
    if 0 < cpus < threads:  # fewer than torch would start threads: a task gets as many threads as CPUs
        profile = replace(profile, fingerprint={**profile.fingerprint, "threads": cpus})
    devices = ["cpu"] if cpus else []
    if measured is None:
        gpu = _catalog_name(node.accelerator) if node.gpus else ""
        devices += ["cuda", "xpu"] if gpu else []
        name = format_count(node.cpus, "CPU")
        if node.gpus:
            name = f"{gpu or node.accelerator or 'a GPU'} + {name}"
        name += " (not calibrated)"
        note = f"estimated: a cloud CPU of {node.cpus} vCPUs"
        if gpu:
            note += f" beside {gpu}"
        elif node.gpus:
            note += f"; {node.accelerator or 'its GPU'} is not in the catalog"
    else:
        gpu = ""
        if node.gpus:
            devices += [device for device in profile.devices() if machine.split_device(device)[0] != "cpu"]
        facts = profile.fingerprint
        cards = Counter(str(card.get("name")) for card in facts.get("accelerators") or ())
        parts = [f"{count}x {card}" if count > 1 else card for card, count in cards.items()]
        name = " + ".join([*parts, f"{facts.get('cpu')}, {format_count(int(facts.get('cores') or 1), 'core')}"])
        note = "; ".join([f"calibrated {profile.created[:10]}", *profile.warnings])
    return Group(Machine(name, profile, gpu, tuple(devices), price, len(nodes), note), tuple(nodes), cpus)


def _catalog_name(accelerator: str) -> str:
    """The catalog's name of a GPU that Ray calls ``accelerator``; "" where the catalog does not have it."""
    try:
        return find_gpu(accelerator.replace("-", " ")).name if accelerator else ""
    except UnknownGPU:
        return ""


def _listed() -> list[Node]:
    """The nodes that Ray knows of, dead ones too."""
    if not ray.is_initialized():
        raise PlacerError('not connected to a Ray cluster; first call: ray.init() or ray.init(address="auto")')
    return [
        Node(
            id=str(node["NodeID"]),
            name=str(node.get("NodeManagerHostname") or node.get("NodeName")),
            labels=node.get("Labels") or {},
            resources=node.get("Resources") or {},
            alive=bool(node["Alive"]),
        )
        for node in ray.nodes()
    ]


def calibrate(*, budget: float = 60.0) -> Cluster:
    """Calibrate one node of each kind, all at once.

    A node runs ``placer calibrate`` for ``budget`` seconds, and keeps its profile. Of a node with a profile that still
    holds, that one is taken. Nodes that could not be calibrated are named with the reason in ``Cluster.failed``.

    Raises:
        ValueError: a wrong argument.
        PlacerError: this process is not connected to a cluster.
    """
    if isinstance(budget, bool) or not isinstance(budget, (int, float)) or not 0.0 < budget < math.inf:
        raise ValueError(f"budget must be a number of seconds above 0, not {budget!r}")
    nodes = _listed()
    fingerprints, failed = _ask([node.id for node in nodes if node.works], machine.fingerprint, timeout=_STARTING)
    kinds = {node: _kind_of(fingerprint) for node, fingerprint in fingerprints.items()}
    first_of_kind = {kind: node for node, kind in reversed(kinds.items())}
    limit = 3.0 * budget + _STARTING  # measuring, and fitting what was measured
    sent, not_calibrated = _ask(list(first_of_kind.values()), _calibrate_here, budget, limit, timeout=limit + _STARTING)
    return Cluster(
        nodes=tuple(replace(node, kind=kinds.get(node.id, ())) for node in nodes),
        profiles={kinds[node]: profile for node, profile in sent.items()},
        failed=failed | not_calibrated,
    )


def _calibrate_here(budget: float, timeout: float) -> Profile:
    """What a task does on its node: ``placer calibrate`` in a process of its own. Returns the profile.

    That process has the node's number of threads, not the one that Ray gives a task. Raises PlacerError.
    """
    path = default_path()
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    command = [sys.executable, "-m", "placer", "calibrate", "--quiet", "--budget", f"{budget:g}", "--output", str(path)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, env=environment, check=False)
    except subprocess.TimeoutExpired:
        raise PlacerError(f"it took longer than {timeout:g} s") from None
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise PlacerError(lines[-1].removeprefix("placer: "))
    return load_cached(path)


def _ask(
    nodes: Sequence[str], function: Callable[..., Any], *arguments: Any, timeout: float
) -> tuple[dict[str, Any], dict[str, str]]:
    """What ``function`` returns on each node, and why a node did not answer, by the nodes' ids; all work at once.

    A task asks for no CPU and no GPU, so that a busy node is reached, too.
    """
    task = ray.remote(function)
    pending = {}
    for node in nodes:
        there = NodeAffinitySchedulingStrategy(node, soft=False)
        options = {"num_cpus": 0, "max_retries": 0, "runtime_env": {"env_vars": ENVIRONMENT}}
        pending[task.options(**options, scheduling_strategy=there).remote(*arguments)] = node
    ready, late = ray.wait(list(pending), num_returns=len(pending), timeout=timeout) if pending else ([], [])
    answers: dict[str, Any] = {}
    failed: dict[str, str] = {}
    for reference in late:
        ray.cancel(reference, force=True)
        failed[pending[reference]] = f"no answer within {timeout:g} s"
    for reference in ready:
        try:
            answers[pending[reference]] = ray.get(reference)
        except ray.exceptions.RayError as error:
            failed[pending[reference]] = _reason_of(error)
    return answers, failed


def _reason_of(error: Exception) -> str:
    cause = getattr(error, "cause", None)
    if isinstance(cause, PlacerError):
        return str(cause)
    if "No module named 'placer" in str(error):
        return "placer is not installed there, or an older one: pip install torch-placer on every node"
    return f"{type(error).__name__}: {first_line(error)}"


def _kind_of(fingerprint: Mapping[str, Any]) -> tuple[str, ...]:
    """Equal for machines that are alike: the same CPU, cores, memory, accelerators and torch.

    Memory is rounded to two digits: nodes of one type differ by some MB.
    """
    facts = [str(fingerprint.get(name)) for name in _KIND]
    cards = fingerprint.get("accelerators") or ()
    facts += sorted(f"{card.get('name')} {card.get('driver')} {_gigabytes(card)}" for card in cards)
    return (*facts, _gigabytes(fingerprint))


def _gigabytes(facts: Mapping[str, Any]) -> str:
    return f"{(facts.get('memory_bytes') or 0) / 2**30:.2g}"


@dataclass(frozen=True)
class NodeChoice:
    """Where a task should run.

    ``kind`` is what the nodes are, ``nodes`` their ids; ``num_cpus`` and ``num_gpus`` what the prediction is for: Ray
    gives a task as many threads as CPUs. ``fleet`` compares all kinds. ``others``: whether there are nodes that were
    not chosen.
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
        """For ``task.options(**...)`` and ``Actor.options(**...)``.

        Ray takes any of the nodes, before version 2.49 the first one. Where all nodes are of the kind, only what to ask
        for.
        """
        resources: dict[str, Any] = {"num_cpus": self.num_cpus, "num_gpus": self.num_gpus}
        if not self.others:
            return resources
        if tuple(int(part) for part in ray.__version__.split(".")[:2]) < _LABELS:
            return {**resources, "scheduling_strategy": NodeAffinitySchedulingStrategy(self.nodes[0], soft=False)}
        return {**resources, "label_selector": {"ray.io/node-id": f"in({','.join(self.nodes)})"}}


def choose_node(
    model: Callable[..., Any] | Workload | Job | Traced,
    batch: Any = None,
    *,
    cluster: Cluster | None = None,
    objective: str = "time",
    price: Mapping[str, float] | None = None,
    target: float | None = None,
    **workload: Any,
) -> NodeChoice:
    """The kind of node, and the device there, on which a step or a job is best. Nothing is run or moved.

    Each kind of node is priced once. One that was never calibrated counts as an estimate.

    Args:
        model: as in ``placer.explain``, or a ``Workload`` or ``Job``.
        cluster: from ``calibrate``; None: the nodes as Ray describes them, none of them calibrated.
        objective: ``"time"``, ``"cost"`` (needs ``price``) or ``"energy"``.
        price: dollars per hour of a node by its name, the value of a label (``"g4dn.xlarge"``) or its accelerator type.
        target: seconds within which it should be done: the cheapest that reaches it wins.
        workload: other arguments of ``placer.explain`` that say what to run.

    Raises:
        ValueError, TypeError: a wrong argument.
        PlacerError: not connected; no node can run it, or none reaches the target; no trace (TraceError).
    """
    if objective == "cost" and not price:
        raise ValueError('objective "cost" needs price, in dollars per hour: {"g4dn.xlarge": 0.526}')
    cluster = Cluster(tuple(_listed())) if cluster is None else cluster
    groups = {group.machine.name: group for group in cluster.groups(price)}
    if not groups:
        raise PlacerError("no node of the cluster is alive and takes tasks that ask for a CPU or a GPU")
    work = work_of(model, batch, **workload)
    fleet = rank(work, [group.machine for group in groups.values()], objective=objective, target=target)
    if fleet.best is None:
        first = fleet.rows[0]
        raise PlacerError(f"no node will do: {first.device} of {first.machine} comes closest ({first.verdict})")
    group, device = groups[fleet.best.machine], fleet.best.device
    cpus, gpus = (group.cpus, 0) if device.startswith("cpu") else (min(group.nodes[0].cpus, 1), 1)
    ids = tuple(node.id for node in group.nodes)
    others = any(node.works and node.id not in ids for node in cluster.nodes)
    return NodeChoice(group.machine.name, ids, device, cpus, gpus, _reason(fleet, len(ids)), fleet, others)


def _reason(fleet: Fleet, nodes: int) -> str:
    """Why the first kind, beside the next one."""
    best, *others = fleet.rows
    unit = f"a {fleet.unit}" if fleet.count is None else format_count(fleet.count, fleet.unit)
    reason = f"{best.device} of {best.machine} takes {format_duration(best.seconds)} for {unit}"
    if best.provenance != "calibrated":
        reason += f", an estimate ({best.provenance})"
    if others:
        reason += f": {best.verdict}; next comes {others[0].device} of {others[0].machine}: {others[0].verdict}"
    return f"{reason} ({format_count(nodes, 'node')} of that kind)"
