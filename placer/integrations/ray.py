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
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

import placer
from placer import machine
from placer import profile as profiles
from placer.errors import PlacerError, ProfileError, UnknownGPU, first_line
from placer.fleets import Fleet, Machine, Traced, compare, cpu_class
from placer.profile import Profile
from placer.units import format_count, format_duration
from placer.workload import Job, Workload, check_choice, check_devices, make_workload

__all__ = ["Cluster", "Group", "Node", "NodeChoice", "calibrate", "choose_node", "nodes"]

#: Seconds in which a node says what it is (a process that imports torch, on a busy node), and to start a worker there.
_ASKING, _STARTING = 120.0, 30.0
#: Ray's first version with ``label_selector``.
_LABELS = (2, 49)
_NODE_ID, _ACCELERATOR = "ray.io/node-id", "accelerator_type:"
#: What makes another kind of machine. Threads are not among it: Ray sets them by the CPUs that a task asks for.
_KIND = ("cpu", "cpu_version", "cpu_instructions", "cores", "torch")
#: Where Ray says which number of threads the node itself asks for: it may have set another one for the worker.
_THREADS, _OWN_THREADS = "OMP_NUM_THREADS", "PLACER_NODE_THREADS"
#: What Ray would narrow down to the accelerators that a task asked for. A task that asked for none is to see them all.
_KEPT = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ONEAPI_DEVICE_SELECTOR",
         "ZE_AFFINITY_MASK")  # fmt: skip
#: The worker's environment. Ray sets OMP_NUM_THREADS in a worker after it has expanded this: the node's own is kept.
ENVIRONMENT = {
    _OWN_THREADS: "${OMP_NUM_THREADS}", **{f"RAY_EXPERIMENTAL_NOSET_{name}": "1" for name in _KEPT},
}  # fmt: skip
#: Begins the line of a node's answer: libraries may print lines of their own.
_SAYS = "placer answer: "


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
    def title(self) -> str:
        return f"{self.name} ({self.id[:8]})"

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
        name = next((name for name in names if name and name in given), None)
        if name is None:
            return None
        if isinstance(given[name], bool) or not 0.0 < given[name] < math.inf:
            raise ValueError(f"the price of {name} must be dollars per hour above 0, not {given[name]!r}")
        return float(given[name])


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

    def profile_of(self, node: Node) -> Profile:
        """The profile of the node's kind.

        Raises:
            PlacerError: there is none; the message names the node, and why.
        """
        found = self.profiles.get(node.kind)
        if found is None:
            unknown = "no node of its kind was calibrated" if node.kind else "nothing is known of it"
            why = self.failed.get(node.id, unknown)
            raise PlacerError(f"{node.title} is not calibrated: {why}; call placer.integrations.ray.calibrate()")
        return found

    def machines(self, price: Mapping[str, float] | None = None) -> list[Machine]:
        """One machine for each kind of node, with how many there are. See ``groups``."""
        return [group.machine for group in self.groups(price)]

    def groups(self, price: Mapping[str, float] | None = None) -> list[Group]:
        """The nodes that take work, by kind and price.

        A node that was never calibrated is priced as a cloud CPU with as many vCPUs as it has CPUs, beside the
        catalog's GPU of its accelerator type; its note says so.

        Args:
            price: dollars per hour of a node, by its name or address, by a label (``"market-type=spot"``, or the value
                alone: ``"g4dn.xlarge"``), by its kind, or by its accelerator type.

        Raises:
            ValueError: a price fits no node, or is not above 0.
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
        found: list[Group] = []
        seen: Counter[str] = Counter()
        for nodes in alike.values():
            group = _group(nodes, self.profiles.get(nodes[0].kind), prices[nodes[0].id])
            name = group.machine.name
            seen[name] += 1
            if seen[name] > 1:
                group = replace(group, machine=replace(group.machine, name=f"{name} #{seen[name]}"))
            found.append(group)
        return found

    def __str__(self) -> str:
        rows = [("nodes", "CPUs", "GPUs", "kind", "known by")]
        for group in self.groups():
            first, made = group.nodes[0], group.machine
            rows.append((str(len(group.nodes)), str(first.cpus), str(first.gpus), made.name, made.note))
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        names = {node.id: node.title for node in self.nodes}
        lines += [f"{names.get(node, node)} failed: {why}" for node, why in self.failed.items()]
        dead = sum(not node.alive and node.id not in self.failed for node in self.nodes)
        idle = sum(node.alive and not node.works for node in self.nodes)
        lines += [f"{dead} dead: left out"] if dead else []
        lines += [f"{idle} without a CPU or a GPU for tasks: left out"] if idle else []
        return "\n".join(lines)


def _group(nodes: Sequence[Node], known: Profile | None, price: float | None) -> Group:
    """Nodes that are alike as a machine. ``known`` None: a cloud CPU of as many vCPUs."""
    first = nodes[0]
    profile = cpu_class(max(first.cpus, 1)) if known is None else known
    threads = profiles.default_threads(profile) or max(profile.threads("cpu"), default=1)
    cpus = min(first.cpus, threads)
    if 0 < cpus < threads:  # fewer than torch would start threads: a task gets as many threads as CPUs
        profile = replace(profile, fingerprint={**profile.fingerprint, "threads": cpus})
    measured = tuple(name for name in profile.devices() if machine.split_device(name)[0] != "cpu")
    cards = [] if known is None else [str(card.get("name")) for card in known.fingerprint.get("accelerators") or ()]
    gpu, missing = ("", "") if measured or not first.gpus else _card(cards[0] if cards else first.accelerator)
    devices: tuple[str, ...] = ("cpu",) if cpus else ()
    if first.gpus:
        devices += ("cuda", "xpu") if gpu else measured
    if known is None:
        card = f"{gpu or first.accelerator or 'a GPU'} + " if first.gpus else ""
        name = f"{card}{first.cpus} CPU{'' if first.cpus == 1 else 's'} (not calibrated)"
        notes = [f"estimated: a cloud CPU of {first.cpus} vCPUs{f' beside {gpu}' if gpu else ''}", missing]
    else:
        name = _described(known) + (f" + {gpu}" if gpu and not cards else "")
        estimated = f"{gpu} by {profiles.knowledge(gpu)}" if gpu else missing
        notes = [f"calibrated {known.created[:10]}", *known.warnings, estimated]
    note = "; ".join(filter(None, notes))
    return Group(Machine(name, profile, gpu, devices, price, len(nodes), note), tuple(nodes), cpus)


def _described(profile: Profile) -> str:
    """A kind in words: its accelerators and its CPU."""
    facts = profile.fingerprint
    cards = [str(card.get("name")) for card in facts.get("accelerators") or ()]
    shown = [f"{count}x {card}" if count > 1 else card for card, count in Counter(cards).items()]
    cores = facts.get("cores")
    return " + ".join([*shown, f"{facts.get('cpu')}, {cores} core{'' if cores == 1 else 's'}"])


def _card(name: str) -> tuple[str, str]:
    """A GPU of the catalog that Ray calls ``name``, and what to say where there is none."""
    try:
        return (profiles.find_gpu(name.replace("-", " ")).name, "") if name else ("", "its GPU is of no known type")
    except UnknownGPU:
        return "", f"its GPU {name} is not in the catalog"


def nodes() -> Cluster:
    """The nodes of the cluster and what was collected of them before. Nothing is measured, no node is asked.

    Raises:
        PlacerError: this process is not connected to a cluster.
    """
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
    except Exception:  # noqa: BLE001 - whatever another version does
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
    What another task on the node does meanwhile disturbs it; the profile then says that the machine was contended.
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
    """
    check_choice("each", each, ("kind", "node"))
    for name, value in (("budget", budget), ("timeout", math.inf if timeout is None else timeout)):
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0.0:
            raise ValueError(f"{name} must be a number of seconds above 0, not {value!r}")
    checked = check_devices(devices)
    request = {"budget": float(budget), "devices": checked and list(checked), "force": force}
    patience = 3.0 * budget + _ASKING if timeout is None else float(timeout)

    asked = [node for node in _listed() if node.works]
    answers, failed = _ask(asked, {"measure": False}, min(patience, _ASKING))
    kinds = {answered: _kind_of(answer["fingerprint"]) for answered, answer in answers.items()}
    _remember(kinds)
    # Of each of these lists one node is to be measured: the next one where the first fails.
    wanted: dict[str, list[Node]] = {}
    for node in asked:
        if node.id in kinds and each == "node":
            wanted[node.id] = [node]
        elif node.id in kinds and (force or _kept(kinds[node.id]) is None):
            wanted.setdefault(kinds[node.id], []).append(node)
    while wanted:
        answers, more = _ask([nodes[0] for nodes in wanted.values()], request, patience)
        failed |= more
        for answered, answer in answers.items():
            try:
                _keep(kinds[answered], answer["profile"])
            except ProfileError as error:
                failed[answered] = first_line(error)
        wanted = {key: nodes[1:] for key, nodes in wanted.items() if nodes[0].id in failed and len(nodes) > 1}
    return replace(nodes(), failed=failed)


def _ask(
    nodes: Sequence[Node], request: dict[str, Any], timeout: float
) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """Ask all nodes at once: their answers, and why a node gave none, by their ids.

    A task asks for no CPU and no GPU: a node that is busy is reached, too.
    """
    task = ray.remote(_on_node)
    pending = {
        task.options(
            num_cpus=0, max_retries=0, runtime_env={"env_vars": ENVIRONMENT},
            scheduling_strategy=NodeAffinitySchedulingStrategy(node.id, soft=False),
        ).remote(request, timeout): node.id
        for node in nodes
    }  # fmt: skip
    if not pending:
        return {}, {}
    allowed, late = timeout + _STARTING, list(pending)
    try:
        ready, late = ray.wait(late, num_returns=len(late), timeout=allowed)
    finally:
        for reference in late:
            ray.cancel(reference, force=True)
    failed = {pending[reference]: f"no answer within {allowed:g} s" for reference in late}
    answers: dict[str, dict[str, Any]] = {}
    for reference in ready:
        try:
            answer = ray.get(reference)
        except ray.exceptions.RayError as error:
            answer = {"error": _why(error)}
        if "error" in answer:
            failed[pending[reference]] = str(answer["error"])
        else:
            answers[pending[reference]] = answer
    return answers, failed


def _why(error: Exception) -> str:
    if isinstance(error, ray.exceptions.NodeDiedError):
        return "the node died, or left the cluster"
    if isinstance(error, ray.exceptions.TaskUnschedulableError):
        return "Ray finds no such node at the moment"
    text = str(error)
    if "No module named 'placer" in text:
        return "placer is not installed there, or an older one: pip install torch-placer on every node"
    told = [line for line in text.strip().splitlines() if line.strip()] or [type(error).__name__]
    last = told[-1] if isinstance(error, ray.exceptions.RayTaskError) else told[0]
    return f"{type(error).__name__}: {last.strip()}"


def _on_node(request: dict[str, Any], timeout: float) -> dict[str, Any]:
    """What a worker does on its node: a new process answers, as ``_answer`` does, for at most ``timeout`` seconds.

    A process of its own has the node's threads and accelerators, whatever the worker was given. The answer has
    ``"fingerprint"``, ``"profile"`` (a file's bytes), or ``"error"``, a sentence.
    """
    environment = dict(os.environ)
    own = environment.pop(_OWN_THREADS, None)
    if own is not None:
        environment.pop(_THREADS, None)
        environment.update({_THREADS: own} if own else {})
    command = [sys.executable, "-m", "placer.integrations.ray", json.dumps(request)]
    try:
        done = subprocess.run(command, capture_output=True, timeout=timeout, env=environment, check=False)
    except subprocess.TimeoutExpired:
        return {"error": f"it took longer than {timeout:g} s"}
    for line in done.stdout.decode(errors="replace").splitlines():
        if line.startswith(_SAYS):
            answer: dict[str, Any] = json.loads(line.removeprefix(_SAYS))
            return {"profile": Path(answer["path"]).read_bytes()} if "path" in answer else answer
    last = (done.stderr.decode(errors="replace").strip().splitlines() or ["it said nothing"])[-1]
    return {"error": f"its process ended with exit code {done.returncode}: {last}"}


def _answer(measure: bool = True, budget: float = 60.0, devices: list[str] | None = None, force: bool = False) -> Any:
    """What this machine is; or the path of its profile, which is measured now unless it holds."""
    if not measure:
        return {"fingerprint": machine.fingerprint()}
    path = profiles.default_path()
    again = path.with_name(f"{path.stem}-again.json") if force else path  # a profile in its place would be the answer
    placer.calibrate(budget=budget, devices=devices, progress=False, path=again)
    again.replace(path)
    return {"path": str(path)}


def _kind_of(fingerprint: Mapping[str, Any]) -> str:
    """A name for machines that are alike: the same CPU, cores, memory, accelerators and torch.

    Memory is rounded to two digits: nodes of one type differ by some MB.
    """

    def memory(size: Any) -> str:
        return f"{size / 2**30:.2g}" if isinstance(size, (int, float)) else "unknown"

    accelerators = fingerprint.get("accelerators") or ()
    cards = sorted((str(a.get("name")), memory(a.get("memory_bytes")), str(a.get("driver"))) for a in accelerators)
    facts = [*(str(fingerprint.get(name)) for name in _KIND), memory(fingerprint.get("memory_bytes")), cards]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]


def _folder() -> Path:
    """Where the profiles of a cluster's machines are kept, a file for each kind, and the kind of every node."""
    return profiles.data_home() / "fleet"


def _keep(kind: str, data: bytes) -> None:
    """Keep a profile that a node sent under its kind. Raises ProfileError for what is no profile."""
    arriving = _folder() / f"{kind}.{os.getpid()}.arriving"
    try:
        profiles.replace_file(arriving, data)
        profiles.save(profiles.load(arriving), _folder() / f"{kind}.json")
    except OSError as error:
        raise ProfileError(f"cannot keep its profile in {_folder()}: {error}") from error
    finally:
        arriving.unlink(missing_ok=True)


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
        read = json.loads((_folder() / "nodes.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return {str(k): str(v) for k, v in read.items()} if isinstance(read, dict) else {}


def _remember(found: Mapping[str, str]) -> None:
    """Keep the kinds of nodes, by their ids. Raises ProfileError if that cannot be written."""
    try:
        profiles.replace_file(_folder() / "nodes.json", json.dumps(_kinds() | dict(found), indent=0).encode())
    except OSError as error:
        raise ProfileError(f"cannot write {_folder() / 'nodes.json'}: {error}; set PLACER_HOME") from error


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
    if not isinstance(model, (Workload, Job, Traced)):
        model = make_workload(model, batch_shape, **workload)
    elif batch_shape is not None or workload:
        given = ", ".join(["batch_shape"] * (batch_shape is not None) + sorted(workload))
        raise ValueError(f"a {type(model).__name__} says what to run already: leave out {given}")
    groups = {group.machine.name: group for group in known.groups(price)}
    if not groups:
        raise PlacerError("no node of the cluster is alive and takes tasks that ask for a CPU or a GPU")
    fleet = compare(model, [group.machine for group in groups.values()], objective=objective, target=target)
    if fleet.best is None:
        first = fleet.rows[0]
        raise PlacerError(f"no node will do: {first.device} of {first.machine} comes closest ({first.verdict})")
    group, device = groups[fleet.best.machine], fleet.best.device
    cpus, gpus = (group.cpus, 0) if device.startswith("cpu") else (min(group.nodes[0].cpus, 1), 1)
    free = [
        node.id for node in group.nodes
        if node.free and node.free.get("CPU", 0) >= cpus and node.free.get("GPU", 0) >= gpus
    ]  # fmt: skip
    ids = tuple(dict.fromkeys([*free, *(node.id for node in group.nodes)]))
    labels = _selector(group.nodes, [node for node in known.nodes if node.works and node.id not in ids])
    can_select = tuple(int(part) for part in ray.__version__.split(".")[:2]) >= _LABELS
    reason = _reason(fleet, len(ids), None if group.nodes[0].free is None else len(free))
    return NodeChoice(
        group.machine.name, ids, device, cpus, gpus, reason, fleet, labels if can_select or not labels else None
    )


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

    def single_out(labels: dict[str, str]) -> bool:
        return bool(labels) and not any(labels.items() <= node.labels.items() for node in others)

    if not others:
        return {}
    common = {key: value for key, value in chosen[0].labels.items() if key != _NODE_ID and value}
    for node in chosen[1:]:
        common = {key: value for key, value in common.items() if node.labels.get(key) == value}
    if not single_out(common):
        return None
    for key in sorted(common):
        fewer = {k: v for k, v in common.items() if k != key}
        if single_out(fewer):
            common = fewer
    return common


def _main() -> None:
    """The process on a node: a request in its argument, the answer in a line of its output."""
    try:
        answer = _answer(**json.loads(sys.argv[1]))
    except (PlacerError, ValueError, MemoryError) as error:
        answer = {"error": first_line(error)}
    print(_SAYS + json.dumps(answer), flush=True)


if __name__ == "__main__":
    _main()
