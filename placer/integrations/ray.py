"""Ray: profiles of the nodes of a cluster, and the node and device on which a task or an actor finishes first.

>>> calibrate(budget=60, each="kind")  # one node of each kind
>>> choice = choose_node(model, (64, 84))
>>> Trainer.options(**choice.options()).remote()
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from placer import machine
from placer import profile as profiles
from placer.decision import Traced
from placer.errors import PlacerError, ProfileError, UnknownGPU, first_line
from placer.fleets import Fleet, Machine, cpu_class, rank, work_of
from placer.integrations.on_node import ENVIRONMENT, calibrated_here
from placer.profile import Profile, read_regular
from placer.units import format_count, format_duration
from placer.workload import Job, Workload, check_choice, check_devices

#: Seconds in which a node says what it is (a process that imports torch, on a busy node), and to start a worker there.
_ASKING, _STARTING = 120.0, 30.0
#: Ray's first version with ``label_selector``.
_LABELS = (2, 49)
_NODE_ID, _ACCELERATOR = "ray.io/node-id", "accelerator_type:"
#: What makes another kind of machine. Threads are not among it: Ray sets them by the CPUs that a task asks for.
_KIND = ("cpu", "cpu_version", "cpu_instructions", "cores", "torch")


@dataclass(frozen=True)
class Node:
    """One node, as Ray describes it.

    ``resources`` are what tasks may ask for (``"CPU"``, ``"GPU"``, ...), ``free`` how much of it nobody has; None where
    that is not known. ``kind`` names what it has in common with others, "" where it gave no answer.
    """

    id: str
    name: str
    address: str
    labels: Mapping[str, str] = field(default_factory=dict)
    resources: Mapping[str, float] = field(default_factory=dict)
    free: Mapping[str, float] | None = None
    alive: bool = True
    kind: str = ""

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
        label = self.labels.get("ray.io/accelerator-type", "")
        typed = (name.removeprefix(_ACCELERATOR) for name in self.resources if name.startswith(_ACCELERATOR))
        return label or next(typed, "")

    def price(self, given: Mapping[str, float]) -> float | None:
        """Its dollars per hour: see ``Cluster.groups``."""
        labels = [text for key, value in self.labels.items() for text in (f"{key}={value}", value)]
        names = (self.name, self.address, *labels, self.kind, self.accelerator)
        return next((float(given[name]) for name in names if name and name in given), None)


@dataclass(frozen=True, eq=False)
class Group:
    """Nodes that are priced alike: the machine that they are, and the CPUs that a task on it should ask for."""

    machine: Machine
    nodes: tuple[Node, ...]
    cpus: int


@dataclass(frozen=True)
class Cluster:
    """The nodes of a cluster, the profiles of their kinds, and why a node has none, by its id."""

    nodes: tuple[Node, ...]
    profiles: Mapping[str, Profile] = field(default_factory=dict)
    failed: Mapping[str, str] = field(default_factory=dict)

    def machines(self, price: Mapping[str, float] | None = None) -> list[Machine]:
        """One machine for each kind of node, with how many there are. See ``groups``."""
        return [group.machine for group in self.groups(price)]

    def groups(self, price: Mapping[str, float] | None = None) -> list[Group]:
        """The nodes that take work, by kind and price.

        One that was never calibrated is priced as a cloud CPU with as many vCPUs as it has CPUs, beside the catalog's
        GPU of its accelerator type. ``price``: dollars per hour of a node, by its name or address, by a label
        (``"market-type=spot"``, or the value alone: ``"g4dn.xlarge"``), by its kind, or by its accelerator type.

        Raises ValueError for a price that fits no node, or is not above 0.
        """
        working = [node for node in self.nodes if node.works]
        prices = {node.id: node.price(price or {}) for node in working}
        if price and working and all(found is None for found in prices.values()):
            labels = sorted({f"{k}={v}" for node in working for k, v in node.labels.items() if k != _NODE_ID})
            raise ValueError(
                f"no node is called {', '.join(map(repr, price))}; give prices by name, label, kind or accelerator "
                f"type (labels: {', '.join(labels) or 'none'})"
            )
        alike: dict[Hashable, list[Node]] = {}
        for node in working:
            kind: Hashable = node.kind if node.kind in self.profiles else ("", node.accelerator)
            alike.setdefault((kind, node.cpus, bool(node.gpus), prices[node.id]), []).append(node)
        seen: Counter[str] = Counter()
        return [_group(nodes, self.profiles.get(nodes[0].kind), prices[nodes[0].id], seen) for nodes in alike.values()]

    def __str__(self) -> str:
        rows = [("nodes", "CPUs", "GPUs", "kind", "known by")]
        for group in self.groups():
            first, made = group.nodes[0], group.machine
            rows.append((str(len(group.nodes)), str(first.cpus), str(first.gpus), made.name, made.note))
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        names = {node.id: node.name for node in self.nodes}
        lines += [f"{names.get(node, '?')} ({node[:8]}) failed: {why}" for node, why in self.failed.items()]
        if idle := sum(not node.works and node.id not in self.failed for node in self.nodes):
            lines.append(f"{idle} dead, or without a CPU or a GPU for tasks: left out")
        return "\n".join(lines)


def _group(nodes: Sequence[Node], known: Profile | None, price: float | None, seen: Counter[str]) -> Group:
    """Nodes that are alike as a machine with a name of its own. ``known`` None: a cloud CPU of as many vCPUs."""
    first = nodes[0]
    profile = cpu_class(max(first.cpus, 1)) if known is None else known
    threads = profiles.default_threads(profile) or max(profile.threads("cpu"), default=1)
    cpus = min(first.cpus, threads)
    if 0 < cpus < threads:  # fewer than torch would start threads: a task gets as many threads as CPUs
        profile = replace(profile, fingerprint={**profile.fingerprint, "threads": cpus})
    facts = profile.fingerprint
    cards = [str(card.get("name")) for card in facts.get("accelerators") or ()]
    measured = tuple(name for name in profile.devices() if machine.split_device(name)[0] != "cpu")
    gpu, missing = ("", "") if measured or not first.gpus else _card(cards[0] if cards else first.accelerator)
    devices: tuple[str, ...] = ("cpu",) if cpus else ()
    if first.gpus:
        devices += ("cuda", "xpu") if gpu else measured
    if known is None:
        card = f"{gpu or first.accelerator or 'a GPU'} + " if first.gpus else ""
        name = f"{card}{format_count(first.cpus, 'CPU')} (not calibrated)"
        notes = [f"estimated: a cloud CPU of {first.cpus} vCPUs{f' beside {gpu}' if gpu else ''}", missing]
    else:
        shown = [f"{count}x {card}" if count > 1 else card for card, count in Counter(cards).items()]
        shown += [f"{facts.get('cpu')}, {format_count(int(facts.get('cores') or 1), 'core')}"]
        name = " + ".join([*shown, gpu] if gpu and not cards else shown)
        notes = [f"calibrated {known.created[:10]}", *known.warnings]
        notes.append(f"{gpu} by {profiles.knowledge(gpu)}" if gpu else missing)
    seen[name] += 1
    name += f" #{seen[name]}" if seen[name] > 1 else ""
    note = "; ".join(filter(None, notes))
    return Group(Machine(name, profile, gpu, devices, price, len(nodes), note), tuple(nodes), cpus)


def _card(name: str) -> tuple[str, str]:
    """A GPU of the catalog that Ray calls ``name``, and what to say where there is none."""
    try:
        return (profiles.find_gpu(name.replace("-", " ")).name, "") if name else ("", "its GPU is of no known type")
    except UnknownGPU:
        return "", f"its GPU {name} is not in the catalog"


def nodes() -> Cluster:
    """The nodes of the cluster and what was collected of them before. Nothing is measured. Raises PlacerError."""
    known = _kinds()
    listed = tuple(replace(node, kind=known.get(node.id, "")) for node in _listed())
    found = {kind: _kept(kind) for kind in dict.fromkeys(node.kind for node in listed if node.kind)}
    return Cluster(listed, {kind: profile for kind, profile in found.items() if profile is not None})


def _listed() -> list[Node]:
    """The nodes that Ray knows of, dead ones too."""
    if not ray.is_initialized():
        raise PlacerError('not connected to a Ray cluster; first call: ray.init() or ray.init(address="auto")')
    try:  # no public function says what is free on each node; it only orders them
        free: dict[str, dict[str, float]] | None = ray._private.state.available_resources_per_node()
    except Exception:  # noqa: BLE001 - whatever another version of Ray does
        free = None
    return [
        Node(
            id=str(found["NodeID"]), name=str(found.get("NodeManagerHostname") or found.get("NodeName")),
            address=str(found.get("NodeManagerAddress")), labels=found.get("Labels") or {},
            resources=found.get("Resources") or {}, alive=bool(found["Alive"]),
            free=None if free is None else free.get(str(found["NodeID"]), {}),
        )
        for found in ray.nodes()
    ]  # fmt: skip


def calibrate(
    *, budget: float = 60.0, devices: Iterable[str] | str | None = None, each: str = "node",
    timeout: float | None = None, force: bool = False,
) -> Cluster:  # fmt: skip
    """Calibrate the nodes of the cluster that this process is connected to, all at once, and keep their profiles here.

    Each node measures itself in a process of its own, as ``placer calibrate`` would there, and keeps its profile too.
    Nodes that could not be calibrated are named with the reason in ``Cluster.failed``.

    Args:
        budget: seconds of measuring on a node.
        devices: of every node; None: all that it has.
        each: ``"kind"`` calibrates one node of each kind of which no profile is kept; ``"node"`` has every node
            calibrate itself.
        timeout: seconds for a node; None: enough for the budget and for fitting.
        force: calibrate also where there is a profile that holds.

    Raises:
        ValueError, TypeError: a wrong argument.
        PlacerError: this process is not connected to a cluster.
        OSError: what the nodes are cannot be written down.
    """
    check_choice("each", each, ("kind", "node"))
    for name, value in (("budget", budget), ("timeout", 1.0 if timeout is None else timeout)):
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0.0 < value < math.inf:
            raise ValueError(f"{name} must be a number of seconds above 0, not {value!r}")
    arguments = ["--budget", f"{budget:g}"]
    for device in check_devices(devices) or ():
        arguments += ["--device", device]
    patience = 3.0 * budget + _ASKING if timeout is None else float(timeout)
    kinds: dict[str, str] = {}
    failed: dict[str, str] = {}

    def ask(nodes: Sequence[Node], arguments: Sequence[str] | None, seconds: float) -> None:
        for node, answer in _ask(nodes, arguments, force, seconds).items():
            if "fingerprint" in answer:
                kinds[node] = _kind_of(answer["fingerprint"])
            try:
                if "profile" in answer:
                    _keep(kinds[node], answer["profile"], force=force)
            except (ProfileError, OSError) as error:
                answer["error"] = f"cannot keep its profile: {first_line(error)}"
            if "error" in answer:
                failed[node] = answer["error"]

    asked = [node for node in _listed() if node.works]
    waiting = {node.id: [node] for node in asked}
    if each == "kind":
        ask(asked, None, min(patience, _ASKING))
        waiting = {}
        for node in asked:
            if node.id in kinds and (force or _kept(kinds[node.id]) is None):
                waiting.setdefault(kinds[node.id], []).append(node)
    while waiting:  # where a node fails, the next one of its kind is asked
        ask([nodes[0] for nodes in waiting.values()], arguments, patience)
        waiting = {key: nodes[1:] for key, nodes in waiting.items() if nodes[0].id in failed and len(nodes) > 1}
    profiles.replace_file(_folder() / "nodes.json", json.dumps(_kinds() | kinds, indent=0).encode())
    return replace(nodes(), failed=failed)


def _ask(
    nodes: Sequence[Node], arguments: Sequence[str] | None, force: bool, timeout: float
) -> dict[str, dict[str, Any]]:
    """What every node answers to ``calibrated_here``, by its id; all are asked at once.

    A task asks for no CPU and no GPU: a node that is busy is reached, too.
    """
    task = ray.remote(calibrated_here)
    pending = {
        task.options(
            num_cpus=0, max_retries=0, runtime_env={"env_vars": ENVIRONMENT},
            scheduling_strategy=NodeAffinitySchedulingStrategy(node.id, soft=False),
        ).remote(arguments, force, timeout): node.id
        for node in nodes
    }  # fmt: skip
    allowed = timeout + _STARTING
    answers: dict[str, dict[str, Any]] = {}
    late = list(pending)
    try:
        ready, late = ray.wait(late, num_returns=len(late), timeout=allowed) if late else ([], [])
    finally:
        for reference in late:
            ray.cancel(reference, force=True)
            answers[pending[reference]] = {"error": f"no answer within {allowed:g} s"}
    for reference in ready:
        try:
            answers[pending[reference]] = ray.get(reference)
        except ray.exceptions.RayError as error:
            answers[pending[reference]] = {"error": _why(error)}
    return answers


def _why(error: Exception) -> str:
    if isinstance(error, ray.exceptions.NodeDiedError):
        return "the node died, or left the cluster"
    if isinstance(error, ray.exceptions.TaskUnschedulableError):
        return "Ray finds no such node at the moment"
    if "No module named 'placer" in str(error):
        return "placer is not installed there, or an older one: pip install torch-placer on every node"
    told = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {told[-1 if isinstance(error, ray.exceptions.RayTaskError) else 0].strip()}"


def _kind_of(fingerprint: Mapping[str, Any]) -> str:
    """A name for machines that are alike: the same CPU, cores, memory, accelerators and torch.

    Memory is rounded to two digits: nodes of one type differ by some MB.
    """
    facts = [str(fingerprint.get(name)) for name in _KIND]
    cards = fingerprint.get("accelerators") or ()
    facts += sorted(f"{card.get('name')} {card.get('driver')} {_gigabytes(card)}" for card in cards)
    return hashlib.sha256(json.dumps([*facts, _gigabytes(fingerprint)]).encode()).hexdigest()[:16]


def _gigabytes(facts: Mapping[str, Any]) -> str:
    return f"{(facts.get('memory_bytes') or 0) / 2**30:.2g}"


def _folder() -> Path:
    """Where the profiles of a cluster's machines are kept, a file for each kind, and the kind of every node."""
    return profiles.data_home() / "fleet"


def _keep(kind: str, data: bytes, *, force: bool) -> None:
    """Keep a profile that a node sent under its kind: of several the one with the most devices, then the longest.

    Raises OSError, or ProfileError for what is no profile.
    """
    arriving = _folder() / f"{kind}.{os.getpid()}.arriving"
    try:
        profiles.replace_file(arriving, data)
        found, before = profiles.load(arriving), _kept(kind)
        if force or before is None or _worth(found) >= _worth(before):
            profiles.save(found, _folder() / f"{kind}.json")
    finally:
        arriving.unlink(missing_ok=True)


def _worth(profile: Profile) -> tuple[int, float]:
    return len(profile.devices()), profile.seconds


def _kept(kind: str) -> Profile | None:
    """The profile of a kind, without its samples; None where there is none that can be read."""
    path = _folder() / f"{kind}.json"
    try:
        return profiles.load_cached(path) if path.is_file() else None
    except ProfileError:
        return None


def _kinds() -> dict[str, str]:
    """The kind of every node that was asked, by the node's id."""
    try:
        read = json.loads(read_regular(_folder() / "nodes.json"))
    except (OSError, ValueError):
        return {}
    return {str(node): str(kind) for node, kind in read.items()} if isinstance(read, dict) else {}


@dataclass(frozen=True)
class NodeChoice:
    """Where a task should run.

    ``kind`` is what the nodes are, ``nodes`` their ids, those with room now first; ``num_cpus`` and ``num_gpus`` what
    the prediction is for: Ray gives a task as many threads as CPUs. ``fleet`` compares all kinds.
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
    model: Callable[..., Any] | Workload | Job | Traced, batch: Any = None, *, cluster: Cluster | None = None,
    objective: str = "time", price: Mapping[str, float] | None = None, target: float | None = None, **workload: Any,
) -> NodeChoice:  # fmt: skip
    """The kind of node, and the device there, on which a step or a job is best. Nothing is run or moved.

    Each kind of node is priced once. One that was never calibrated counts as an estimate.

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
    groups = {group.machine.name: group for group in known.groups(price)}
    if not groups:
        raise PlacerError("no node of the cluster is alive and takes tasks that ask for a CPU or a GPU")
    work = work_of(model, batch, **workload)
    machines = [group.machine for group in groups.values()]
    fleet = rank(work, machines, objective=objective, target=target)
    if fleet.best is None:
        first = fleet.rows[0]
        raise PlacerError(f"no node will do: {first.device} of {first.machine} comes closest ({first.verdict})")
    group, device = groups[fleet.best.machine], fleet.best.device
    cpus, gpus = (group.cpus, 0) if device.startswith("cpu") else (min(group.nodes[0].cpus, 1), 1)
    ids = [node.id for node in group.nodes]
    free = {
        node.id for node in group.nodes
        if node.free and node.free.get("CPU", 0) >= cpus and node.free.get("GPU", 0) >= gpus
    }  # fmt: skip
    labels = _selector(group.nodes, [node for node in known.nodes if node.works and node.id not in ids])
    if labels and tuple(int(part) for part in ray.__version__.split(".")[:2]) < _LABELS:
        labels = None
    reason = _reason(fleet, len(ids), None if group.nodes[0].free is None else len(free))
    first_free = tuple(sorted(ids, key=lambda node: node not in free))
    return NodeChoice(group.machine.name, first_free, device, cpus, gpus, reason, fleet, labels)


def _reason(fleet: Fleet, nodes: int, free: int | None) -> str:
    """Why the first kind, beside the next one."""
    best, *others = fleet.rows
    unit = f"a {fleet.unit}" if fleet.count is None else format_count(fleet.count, fleet.unit)
    told = f"{best.device} of {best.machine} takes {format_duration(best.seconds)} for {unit}"
    told += "" if best.provenance == "calibrated" else f", an estimate ({best.provenance})"
    if others:
        told += f": {best.verdict}; next comes {others[0].device} of {others[0].machine}: {others[0].verdict}"
    count = f"{nodes:,} node{'s' * (nodes != 1)} of that kind"
    room = "" if free is None else f", {free:,} with room now" if free else ", none with room now: the work waits"
    return f"{told} ({count}{room})"


def _selector(chosen: Sequence[Node], others: Sequence[Node]) -> dict[str, str] | None:
    """The fewest labels that all chosen nodes have, and no other has all of; {} without others, None where none do."""
    if not others:
        return {}
    common = {key: value for key, value in chosen[0].labels.items() if key != _NODE_ID and value}
    for node in chosen[1:]:
        common = {key: value for key, value in common.items() if node.labels.get(key) == value}
    fewest: dict[str, str] | None = None
    for key in ("", *sorted(common)):  # all of them, then without one after the other, as long as that is enough
        fewer = {name: value for name, value in (fewest or common).items() if name != key}
        if fewer and not any(fewer.items() <= node.labels.items() for node in others):
            fewest = fewer
    return fewest
