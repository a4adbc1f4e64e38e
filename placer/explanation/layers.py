"""Layer rows -> the tree of the model, each node with the time of everything below it."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from placer.explanation.data import LayerRow
from placer.units import whole_percents

#: Numbered layers are shown as one row where at least this many follow each other, and the time of none differs by more
#: than this share from the first one's.
FEWEST_ALIKE, ALIKE = 3, 0.25


@dataclass
class Node:
    """A layer: ``seconds`` by column include the layers below, and ``guessed`` is the part of them nobody measured.

    ``own`` holds those of the ops that it issues itself.
    """

    label: str
    seconds: dict[str, float] = field(default_factory=dict)
    guessed: dict[str, float] = field(default_factory=dict)
    children: dict[str, Node] = field(default_factory=dict)
    own: Node | None = None

    def add(self, seconds: Mapping[str, float], guessed: Mapping[str, float]) -> None:
        for sums, added in ((self.seconds, seconds), (self.guessed, guessed)):
            for column, value in added.items():
                sums[column] = sums.get(column, 0.0) + value


@dataclass(frozen=True)
class Line:
    """A row to show, ``depth`` levels below the whole."""

    depth: int
    node: Node


def tree(rows: Sequence[LayerRow], device: str | None) -> Node:
    """The model's layers. The columns are the phases of ``device``; for None the devices, their phases added up."""
    root = Node("(whole model)")
    for row in rows:
        added = row.devices if device is None else {row.phase: row.devices.get(device, 0.0)}
        unsure = row.guessed if device is None else {row.phase: row.guessed.get(device, 0.0)}
        node = root
        path = [node]
        for part in row.name.split(".") if row.name else ():
            node = node.children.setdefault(part, Node(part))
            path.append(node)
        node.own = node.own or Node("(itself)")
        for ancestor in (*path, node.own):
            ancestor.add(added, unsure)
    return root


def gathered(node: Node) -> Node:
    """The same tree, runs of numbered layers with the same structure and about the same time merged; all sums stay."""
    children: dict[str, Node] = {}
    run: list[Node] = []
    for child in (*map(gathered, node.children.values()), None):
        if run and (child is None or not _alike(run[0], child)):
            for row in [_merged(run)] if len(run) >= FEWEST_ALIKE else run:
                children[row.label] = row
            run = []
        if child is not None:
            run.append(child)
    return replace(node, children=children)


def _alike(a: Node, b: Node) -> bool:
    if not (a.label.isdigit() and b.label.isdigit()) or _shape(a) != _shape(b):
        return False
    columns = {*a.seconds, *b.seconds}
    return all(
        abs(a.seconds.get(c, 0.0) - b.seconds.get(c, 0.0)) <= ALIKE * max(a.seconds.get(c, 0.0), b.seconds.get(c, 0.0))
        for c in columns
    )


def _shape(node: Node) -> Hashable:
    return tuple((child.label, _shape(child)) for child in node.children.values())


def _merged(run: Sequence[Node]) -> Node:
    """One node for several of the same structure."""
    first, last = run[0], run[-1]
    merged = Node(first.label if first.label == last.label else f"{first.label}-{last.label} ({len(run)} alike)")
    for node in run:
        merged.add(node.seconds, node.guessed)
    merged.children = {name: _merged([node.children[name] for node in run]) for name in first.children}
    issued = [node.own for node in run if node.own]
    merged.own = _merged(issued) if issued else None
    return merged


def lines(root: Node, small: float, *, add_columns: bool) -> Iterator[Line]:
    """The rows to show. Children with a share below ``small`` are gathered into one row at their level.

    The rows one level below a node add up to it. ``add_columns`` says that the columns are parts of one time (phases)
    and not alternatives (devices).
    """

    def share(node: Node) -> float:
        if add_columns:
            return _ratio(sum(node.seconds.values()), sum(root.seconds.values()))
        return max((_ratio(node.seconds.get(c, 0.0), total) for c, total in root.seconds.items()), default=0.0)

    def walk(node: Node, depth: int) -> Iterator[Line]:
        yield Line(depth, node)
        large = [child for child in node.children.values() if share(child) >= small]
        if not large:
            return
        rest = Node("(other layers)")
        for child in node.children.values():
            if share(child) < small:
                rest.add(child.seconds, child.guessed)
        issued = [node.own] if node.own else []
        for part in (*large, *(extra for extra in (rest, *issued) if any(extra.seconds.values()))):
            yield from walk(_joined(part), depth + 1)

    return walk(root, 0)


def percents(shown: Sequence[Line], columns: Sequence[str]) -> list[int]:
    """Percent of the whole's time in ``columns`` that each row takes. The rows one level below a row add up to it."""
    seconds = [sum(line.node.seconds.get(column, 0.0) for column in columns) for line in shown]
    shares = [100 if seconds and seconds[0] > 0.0 else 0] * len(shown)
    for number, line in enumerate(shown):
        below: list[int] = []
        for other in range(number + 1, len(shown)):
            if shown[other].depth <= line.depth:
                break
            if shown[other].depth == line.depth + 1:
                below.append(other)
        for other, percent in zip(below, whole_percents([seconds[n] for n in below], shares[number]), strict=True):
            shares[other] = percent
    return shares


def _joined(node: Node) -> Node:
    """A chain of only children, the upper ones without ops of their own, as its last node under a dotted name."""
    while len(node.children) == 1 and not (node.own and any(node.own.seconds.values())):
        child = next(iter(node.children.values()))
        node = replace(child, label=f"{node.label}.{child.label}")
    return node


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole > 0.0 else 0.0
