"""Layer rows -> the tree of the model, each node with the time of everything below it on each device."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from placer.explanation.data import LayerRow

#: Numbered layers are shown as one row where at least this many follow each other, and the time of none differs by more
#: than this share from the first one's.
FEWEST_ALIKE, ALIKE = 3, 0.25
#: Layers below this share of the time on every device are gathered into one row at their level.
SMALL = 0.01


@dataclass
class Node:
    """A layer: ``seconds`` by device include the layers below. ``own`` holds those of the ops that it issues itself."""

    label: str
    seconds: dict[str, float] = field(default_factory=dict)
    children: dict[str, Node] = field(default_factory=dict)
    own: Node | None = None

    def add(self, seconds: Mapping[str, float]) -> None:
        for device, added in seconds.items():
            self.seconds[device] = self.seconds.get(device, 0.0) + added


def tree(rows: Sequence[LayerRow]) -> Node:
    """The model's layers, their phases added up."""
    root = Node("(whole model)")
    for row in rows:
        node = root
        node.add(row.devices)
        for part in row.name.split(".") if row.name else ():
            node = node.children.setdefault(part, Node(part))
            node.add(row.devices)
        node.own = node.own or Node("(itself)")
        node.own.add(row.devices)
    return root


def gathered(node: Node) -> Node:
    """The same tree, runs of numbered layers with the same structure and about the same time merged; all sums stay."""
    runs: list[list[Node]] = []
    for child in map(gathered, node.children.values()):
        if runs and _alike(runs[-1][0], child):
            runs[-1].append(child)
        else:
            runs.append([child])
    children: list[Node] = []
    for run in runs:
        children += [_merged(run)] if len(run) >= FEWEST_ALIKE else run
    return replace(node, children={child.label: child for child in children})


def _alike(a: Node, b: Node) -> bool:
    if not (a.label.isdigit() and b.label.isdigit()) or _shape(a) != _shape(b):
        return False
    pairs = [(a.seconds.get(device, 0.0), b.seconds.get(device, 0.0)) for device in {*a.seconds, *b.seconds}]
    return all(abs(one - other) <= ALIKE * max(one, other) for one, other in pairs)


def _shape(node: Node) -> Hashable:
    return tuple((child.label, _shape(child)) for child in node.children.values())


def _merged(run: Sequence[Node]) -> Node:
    """One node for several of the same structure."""
    first, last = run[0], run[-1]
    merged = Node(first.label if first.label == last.label else f"{first.label}-{last.label} ({len(run)} alike)")
    for node in run:
        merged.add(node.seconds)
    for name in first.children:
        merged.children[name] = _merged([node.children[name] for node in run])
    issued = [node.own for node in run if node.own]
    merged.own = _merged(issued) if issued else None
    return merged


def lines(root: Node) -> Iterator[tuple[int, Node]]:
    """The rows to show, each with its depth below the whole. The rows one level below a row add up to it."""

    def walk(node: Node, depth: int) -> Iterator[tuple[int, Node]]:
        yield depth, node
        small = [child for child in node.children.values() if _share(child, root) < SMALL]
        if len(small) == len(node.children):
            return
        rest = Node("(other layers)")
        for child in small:
            rest.add(child.seconds)
        large = [child for child in node.children.values() if child not in small]
        extra = [part for part in (rest, node.own) if part is not None and any(part.seconds.values())]
        for part in (*large, *extra):
            yield from walk(_joined(part), depth + 1)

    return walk(root, 0)


def _share(node: Node, root: Node) -> float:
    """The largest share that a node has in the whole on a device."""
    return max((node.seconds.get(device, 0.0) / (whole or 1.0) for device, whole in root.seconds.items()), default=0.0)


def _joined(node: Node) -> Node:
    """A chain of only children, the upper ones without ops of their own, as its last node under a dotted name."""
    while len(node.children) == 1 and not (node.own and any(node.own.seconds.values())):
        child = next(iter(node.children.values()))
        node = replace(child, label=f"{node.label}.{child.label}")
    return node
