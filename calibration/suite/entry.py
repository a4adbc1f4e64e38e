"""What one network of the validation suite is."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn

from placer.workload import Data

Suite = Literal["quick", "reference", "full"]
Mode = Literal["train", "infer"]


@dataclass(frozen=True)
class Entry:
    """A network, the inputs to run it on, and the cells (batch x mode) it is validated in.

    ``build()`` makes the model on the CPU; ``example(batch)`` the real CPU tensors of one step, as ``example=`` of
    ``placer.choose`` takes them. What a batch counts (rows, images, sequences, graph nodes) is the family's own habit.
    """

    name: str
    family: str
    build: Callable[[], nn.Module]
    example: Callable[[int], Any]
    batches: tuple[int, ...]
    modes: tuple[Mode, ...] = ("train", "infer")
    optimizer: str = "adam"
    #: Of the model's output; a sum over floating outputs when None.
    loss: Callable[[Any], Any] | None = None
    suites: frozenset[Suite] = frozenset({"full"})
    #: Import names of packages that torch alone does not bring.
    needs: tuple[str, ...] = ()
    #: Where its batches live; None: where the run says, on the host if it says nothing.
    data: Data | None = None
    #: The dtype of mixed precision, as ``torch.autocast`` takes it; None: none.
    autocast: torch.dtype | None = None
    #: False where no trace can be had, neither on meta tensors nor by running a copy: saying so is the right answer.
    traceable: bool = True

    def missing(self) -> tuple[str, ...]:
        """The packages this entry needs that are not installed. Imports nothing."""
        return tuple(name for name in self.needs if importlib.util.find_spec(name) is None)
