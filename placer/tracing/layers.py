"""Which layer an op belongs to: by the modules entered in forward, by autograd sequence numbers in backward.

Autograd numbers its nodes in the order forward creates them. The numbers at the module boundaries therefore map every
node of the backward pass to the layer whose forward created it.
"""

from __future__ import annotations

from bisect import bisect_right
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

#: The number of the next node that this thread makes.
_next_node = torch._C._autograd._get_sequence_nr
_NO_SEQUENCE = 2**63  # AccumulateGrad nodes carry the largest number: they run as early as possible


class Layers:
    """The layer that is running. ``calls`` counts ``nn.Module.__call__`` entries."""

    def __init__(self, model: nn.Module) -> None:
        self.calls = 0
        self.paused = False  # modules entered while a fused op is computed are no part of the step
        self.stack: list[str] = [""]
        self._paths: dict[int, str] = {}  # by the number of the first node, in ascending order
        self._starts: list[int] = []  # the same numbers, to look them up
        self._owners: dict[int, str] = {}
        for path, module in model.named_modules():
            for parameter in module._parameters.values():
                if parameter is not None:
                    self._owners.setdefault(id(parameter), path)
            # TorchScript modules refuse hooks of their own; the base class accepts them, and calls look them up.
            nn.Module.register_forward_pre_hook(module, partial(self.entered, path), prepend=True)
            nn.Module.register_forward_hook(module, self._leave)

    def __deepcopy__(self, _: object) -> Layers:
        """A step may copy a layer, and its hooks with it: the copy's calls are calls of that layer."""
        return self

    @property
    def current(self) -> str:
        """Path of the layer whose forward is running; "" outside all modules."""
        return self.stack[-1]

    def owner(self, parameter: Tensor) -> str:
        """Path of the layer that holds this parameter."""
        return self._owners.get(id(parameter), "")

    def of_backward(self) -> str:
        """The layer of the autograd node that is running now."""
        if len(self.stack) > 1:  # forward again, inside backward: activation checkpointing
            return self.stack[-1]
        node: Any = torch._C._current_autograd_node()
        if node is None:
            return ""
        number = node._sequence_nr()
        if number >= _NO_SEQUENCE:
            return self.owner(node.variable) if hasattr(node, "variable") else ""
        if len(self._starts) < len(self._paths):
            self._starts = list(self._paths)
        index = bisect_right(self._starts, number) - 1
        return self._paths[self._starts[index]] if index >= 0 else ""

    def mark(self, path: str) -> None:
        """Assign autograd nodes made from here on to ``path``."""
        self._paths[_next_node()] = path

    def reset(self) -> None:
        """Leave all layers."""
        self.stack[:] = [""]
        self.mark("")

    def entered(self, path: str, *_: object) -> None:
        """A module's call began."""
        if not self.paused:
            self.calls += 1
            self.stack.append(path)
            self.mark(path)

    def _leave(self, module: nn.Module, args: Any, output: Any) -> None:
        if not self.paused:
            self.stack.pop()
            self.mark(self.stack[-1])


def describe_layer(path: str) -> str:
    """The layer as an error message names it."""
    return f"layer {path!r}" if path else "the step"
