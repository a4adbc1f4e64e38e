"""The nodes of a cluster, what is known of each, and the machines they make: one for all nodes that are alike."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from placer import profile as profiles
from placer.errors import PlacerError, UnknownGPU
from placer.fleets import Machine, cpu_class
from placer.integrations.collected import described
from placer.machine import split_device
from placer.profile import Profile

_ACCELERATOR = "accelerator_type:"
_CPU, _CARDS = ("cpu",), ("cuda", "xpu")  # devices of torch; a card of the catalog is one of the latter


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

    def has_room(self, cpus: int, gpus: int) -> bool:
        """Whether so many CPUs and GPUs are free now; False where that is not known."""
        free = self.free or {}
        return self.free is not None and free.get("CPU", 0) >= cpus and free.get("GPU", 0) >= gpus


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
        prices = {node.id: _price(node, price or {}) for node in working}
        if price and working and all(found is None for found in prices.values()):
            labels = sorted({f"{k}={v}" for node in working for k, v in node.labels.items() if k != "ray.io/node-id"})
            raise ValueError(
                f"no node is called {', '.join(map(repr, price))}; give prices by name, label, kind or accelerator "
                f"type (labels: {', '.join(labels) or 'none'})"
            )
        alike: dict[Hashable, list[Node]] = {}
        for node in working:
            kind: Hashable = node.kind if node.kind in self.profiles else ("", node.accelerator)
            alike.setdefault((kind, node.cpus, bool(node.gpus), prices[node.id]), []).append(node)
        limited: dict[tuple[str, int], Profile] = {}
        found = [self._group(nodes, prices[nodes[0].id], limited) for nodes in alike.values()]
        seen: Counter[str] = Counter()
        for number, group in enumerate(found):
            name = group.machine.name
            seen[name] += 1
            if seen[name] > 1:
                found[number] = replace(group, machine=replace(group.machine, name=f"{name} #{seen[name]}"))
        return found

    def _group(
        self, nodes: Sequence[Node], price: float | None, limited: dict[tuple[str, int], Profile]
    ) -> Group:  # fmt: skip
        first = nodes[0]
        profile = self.profiles.get(first.kind)
        if profile is None:
            return _unknown(nodes, price)
        threads = profiles.default_threads(profile) or max(profile.threads("cpu"), default=1)
        cpus = min(first.cpus, threads)
        if 0 < cpus < threads:  # fewer than torch would start threads: a task gets as many threads as CPUs
            key = (first.kind, cpus)
            fewer = replace(profile, fingerprint={**profile.fingerprint, "threads": cpus})
            profile = limited.setdefault(key, fewer)
        own = [name for name in profile.devices() if split_device(name)[0] != "cpu"]
        cards = [str(card.get("name")) for card in profile.fingerprint.get("accelerators") or ()]
        gpu, missing = ("", "") if own or not first.gpus else _card(next(iter(cards), first.accelerator))
        devices = (*_CPU[: bool(cpus)], *(own if first.gpus else ()), *(_CARDS if gpu else ()))
        name = described(profile) + (f" + {gpu}" if gpu and not cards else "")
        estimated = f"{gpu} by {profiles.knowledge(gpu)}" if gpu else missing
        note = "; ".join(filter(None, (f"calibrated {profile.created[:10]}", *profile.warnings, estimated)))
        return Group(Machine(name, profile, gpu, devices, price, len(nodes), note), tuple(nodes), cpus)

    def __str__(self) -> str:
        return table(self)


def _unknown(nodes: Sequence[Node], price: float | None) -> Group:
    """Nodes of which only the resources are known."""
    first = nodes[0]
    gpu, missing = _card(first.accelerator) if first.gpus else ("", "")
    profile = cpu_class(max(first.cpus, 1))
    cpus = min(first.cpus, profiles.default_threads(profile) or 1)
    devices = (*_CPU[: bool(cpus)], *(_CARDS if gpu else ()))
    card = f"{gpu or first.accelerator or 'a GPU'} + " if first.gpus else ""
    name = f"{card}{first.cpus} CPU{'' if first.cpus == 1 else 's'} (not calibrated)"
    beside = f" beside {gpu}" if gpu else ""
    note = "; ".join(filter(None, (f"estimated: a cloud CPU of {first.cpus} vCPUs{beside}", missing)))
    return Group(Machine(name, profile, gpu, devices, price, len(nodes), note), tuple(nodes), cpus)


def _card(name: str) -> tuple[str, str]:
    """A GPU of the catalog that Ray calls ``name``, and what to say where there is none."""
    try:
        return (profiles.find_gpu(name.replace("-", " ")).name, "") if name else ("", "its GPU is of no known type")
    except UnknownGPU:
        return "", f"its GPU {name} is not in the catalog"


def _price(node: Node, price: Mapping[str, float]) -> float | None:
    labels = [text for key, value in node.labels.items() for text in (f"{key}={value}", value)]
    for name in (node.name, node.address, *labels, node.kind, node.accelerator):
        if name and name in price:
            if isinstance(price[name], bool) or not 0.0 < price[name] < math.inf:
                raise ValueError(f"the price of {name} must be dollars per hour above 0, not {price[name]!r}")
            return float(price[name])
    return None


def table(cluster: Cluster) -> str:
    """The kinds of a cluster, and the nodes that failed, as plain text."""
    rows = [("nodes", "CPUs", "GPUs", "kind", "known by")]
    for group in cluster.groups():
        first = group.nodes[0]
        rows.append((str(len(group.nodes)), str(first.cpus), str(first.gpus), group.machine.name, group.machine.note))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    names = {node.id: node.title for node in cluster.nodes}
    lines += [f"{names.get(node, node)} failed: {why}" for node, why in cluster.failed.items()]
    dead = sum(not node.alive and node.id not in cluster.failed for node in cluster.nodes)
    idle = sum(node.alive and not node.works for node in cluster.nodes)
    lines += [f"{dead} dead: left out"] if dead else []
    lines += [f"{idle} without a CPU or a GPU for tasks: left out"] if idle else []
    return "\n".join(lines)
