"""Layer rows -> the tree of the model, each node with the time of everything below it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from placer.explanation.explanation import LayerRow


@dataclass
class Node:
    """A layer. ``seconds`` by column includes the layers below; ``own`` is the part of the ops it issues itself."""

    label: str
    seconds: dict[str, float] = field(default_factory=dict)
    own: dict[str, float] = field(default_factory=dict)
    children: dict[str, Node] = field(default_factory=dict)


@dataclass(frozen=True)
class Line:
    """A row to show: ``share`` is the node's part of the whole (of its largest column, when columns are devices)."""

    depth: int
    node: Node
    share: float


def tree(rows: Sequence[LayerRow], device: str | None) -> Node:
    """With a ``device`` the columns are its phases; without, they are the devices, phases added up."""
    root = Node("(whole model)")
    for row in rows:
        added = row.devices if device is None else {row.phase: row.devices.get(device, 0.0)}
        node = root
        _add(node.seconds, added)
        for part in row.name.split(".") if row.name else ():
            node = node.children.setdefault(part, Node(part))
            _add(node.seconds, added)
        _add(node.own, added)
    return root


def lines(root: Node, small: float, *, add_columns: bool) -> Iterator[Line]:
    """The rows to show. Children with a share below ``small`` are gathered into one row at their level.

    The rows one level below a node add up to it: a layer with ops of its own gets a row ``(itself)`` beside its
    children. ``add_columns`` tells that columns are parts of one time (phases), not alternatives (devices).
    """

    def share(node: Node) -> float:
        if add_columns:
            return _ratio(sum(node.seconds.values()), sum(root.seconds.values()))
        return max((_ratio(node.seconds.get(c, 0.0), total) for c, total in root.seconds.items()), default=0.0)

    def walk(node: Node, depth: int) -> Iterator[Line]:
        yield Line(depth, node, share(node))
        large = [child for child in node.children.values() if share(child) >= small]
        if not large:
            return
        for child in large:
            yield from walk(_joined(child), depth + 1)
        rest = Node("(other layers)")
        for child in node.children.values():
            if share(child) < small:
                _add(rest.seconds, child.seconds)
        for extra in (rest, Node("(itself)", seconds=node.own)):
            if any(extra.seconds.values()):
                yield Line(depth + 1, extra, share(extra))

    return walk(root, 0)


def _joined(node: Node) -> Node:
    """A chain of only children without time of their own between reads as one dotted name."""
    while len(node.children) == 1 and not any(node.own.values()):
        child = next(iter(node.children.values()))
        node = Node(f"{node.label}.{child.label}", child.seconds, child.own, child.children)
    return node


def _add(sums: dict[str, float], added: Mapping[str, float]) -> None:
    for column, seconds in added.items():
        sums[column] = sums.get(column, 0.0) + seconds


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole > 0.0 else 0.0
