"""Which layer an op belongs to: by the modules entered in forward, by autograd sequence numbers in backward.

Autograd numbers its nodes in the order forward creates them. The numbers at the module boundaries therefore map every
node of the backward pass to the layer whose forward created it.
"""

from __future__ import annotations

import contextlib
import sys
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

#: The number of the next node that this thread makes.
_next_node = torch._C._autograd._get_sequence_nr
#: The attribute of a module that has its path while it is traced.
_PATH = "_placer_path"
_NO_SEQUENCE = 2**63  # AccumulateGrad nodes carry the largest number: they run as early as possible


class Layers:
    """The layer that is running. ``calls`` counts ``nn.Module.__call__`` entries.

    ``roots`` maps names to modules: a layer has its path in its root, after the root's name where there are several.
    ``others``: modules that are part of none count too, by their class.
    """

    def __init__(self, roots: Mapping[str, nn.Module], others: bool = False) -> None:
        self.calls = 0
        self.paused = False  # modules entered while a fused op is computed are no part of the step
        self.stack: list[str] = [""]
        #: The innermost layer that an exception left since the last one was entered.
        self.failed: str | None = None
        self._others = others
        self._paths: dict[int, str] = {}  # by the number of the first node, in ascending order
        self._starts: list[int] = []  # the same numbers, to look them up
        self._owners: dict[int, str] = {}
        for name, root in roots.items():
            for path, module in root.named_modules():
                full = path if len(roots) == 1 else f"{name}.{path}" if path else name
                module.__dict__.setdefault(_PATH, full)  # with the module, so that a copy of it is that layer
                for parameter in module._parameters.values():
                    if parameter is not None:
                        self._owners.setdefault(id(parameter), full)

    @contextlib.contextmanager
    def watching(self, before: Callable[[nn.Module, Any], None] = lambda module, args: None) -> Iterator[None]:
        """Follow every module's call, by hooks of the process; ``before`` is given the module and its arguments."""

        def enter(module: nn.Module, args: Any) -> None:
            name = module.__dict__.get(_PATH, type(module).__name__ if self._others else None)
            if name is not None and not self.paused:
                before(module, args)
                self.entered(name)

        def leave(module: nn.Module, args: Any, output: Any) -> None:
            if not self.paused and (self._others or _PATH in module.__dict__):
                if sys.exc_info()[1] is not None and self.failed is None:
                    self.failed = self.current
                self.stack.pop()
                self.mark(self.current)

        handles = (
            register_module_forward_pre_hook(enter),
            register_module_forward_hook(leave, always_call=True),  # also where the script catches what it raises
        )
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

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

    def entered(self, path: str) -> None:
        """A module's call began."""
        self.calls += 1
        self.failed = None
        self.stack.append(path)
        self.mark(path)


def describe_layer(path: str) -> str:
    """The layer as an error message names it."""
    return f"layer {path!r}" if path else "the step"
