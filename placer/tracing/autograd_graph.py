"""Walks autograd's graph: which nodes a backward pass runs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import Tensor
from torch.autograd.graph import GradientEdge, get_gradient_edge


def nodes_of(outputs: Iterable[Any], inputs: Iterable[Any] | None = None) -> set[Any]:
    """The autograd nodes a backward pass from ``outputs`` runs, gradient accumulation included.

    With ``inputs`` (tensors), only the nodes on a path from an output to an input.
    """
    seen: dict[Any, list[Any]] = {}
    queue = [_node(output) for output in outputs]
    while queue:
        node = queue.pop()
        if node is None or node in seen:
            continue
        seen[node] = [following for following, _ in node.next_functions if following is not None]
        queue.extend(seen[node])
    return set(seen) if inputs is None else _leading_to({_node(tensor) for tensor in inputs}, seen)


def _leading_to(targets: set[Any], graph: dict[Any, list[Any]]) -> set[Any]:
    before: dict[Any, list[Any]] = {}
    for node, following in graph.items():
        for other in following:
            before.setdefault(other, []).append(node)
    found: set[Any] = set()
    queue = [node for node in targets if node in graph]
    while queue:
        node = queue.pop()
        if node not in found:
            found.add(node)
            queue.extend(before.get(node, ()))
    return found


def _node(value: Any) -> Any:
    """The node that makes a tensor, or accumulates its gradient."""
    if isinstance(value, GradientEdge):
        return value.node
    return get_gradient_edge(value).node if isinstance(value, Tensor) and value.requires_grad else None
