"""The layers of a model as an icicle plot: each layer below the one it is in, its width its share of the op time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from placer.explanation.layers import Node, tree
from placer.explanation.rows import LayerRow

#: A layer narrower than this share of the whole is not drawn: it would take less than a pixel.
NARROWEST = 0.0005


@dataclass(frozen=True)
class Cell:
    """One layer: ``x`` and ``width`` are shares of the whole, ``depth`` counts from the model at 0.

    ``path`` is the layer's full name, empty for the model itself; ``guess`` the share of its time that is a guess.
    """

    path: str
    label: str
    depth: int
    x: float
    width: float
    seconds: float
    guess: float


def cells(rows: Sequence[LayerRow], device: str) -> list[Cell]:
    """The cells of one device, each before those inside it. What a layer issues itself is a gap."""
    root = tree(rows, None)
    whole = root.seconds.get(device, 0.0)
    return [] if whole <= 0.0 else list(_walk(root, device, whole, "", 0, 0.0))


def _walk(node: Node, device: str, whole: float, path: str, depth: int, x: float) -> Iterator[Cell]:
    seconds = node.seconds.get(device, 0.0)
    if seconds / whole < NARROWEST:
        return
    guess = node.guessed.get(device, 0.0) / seconds
    yield Cell(path, node.label, depth, x, seconds / whole, seconds, guess)
    for label, child in node.children.items():
        below = f"{path}.{label}" if path else label
        yield from _walk(child, device, whole, below, depth + 1, x)
        x += child.seconds.get(device, 0.0) / whole
