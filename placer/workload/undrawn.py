"""Weights that nobody draws: a model's price depends on their shapes."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

#: Smaller tensors are drawn at once: that costs next to nothing.
LEAST_ELEMENTS = 65_536
_DRAWS = (torch.ops.aten.normal_.default, torch.ops.aten.uniform_.default)


class Undrawn(TorchDispatchMode):
    """A context in which large CPU tensors get zeros where they were to get random numbers.

    Drawing is most of the time of building a large model. ``draw`` draws them after all, for a step that has to run;
    what a constructor computed of them in between is that of zeros.
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else torch imports its compiler, for two seconds, to hide this class from it

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._left: dict[int, partial[Tensor]] = {}  # by the address of the memory

    def draw(self) -> None:
        """Fill every tensor that has got zeros."""
        with torch.no_grad():
            while self._left:
                self._left.popitem()[1]()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func not in _DRAWS or args[0].numel() < LEAST_ELEMENTS or args[0].device.type != "cpu":
            return func(*args, **(kwargs or {}))
        tensor: Tensor = args[0]
        self._left[tensor.data_ptr()] = partial(func, tensor.detach(), *args[1:], **(kwargs or {}))
        return tensor.zero_()
