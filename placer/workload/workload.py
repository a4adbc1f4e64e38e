"""The data of a workload: one step of somebody's model, and how many such steps will follow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import nn

from placer.lazy import cached_property
from placer.nest import tensors
from placer.workload.loading import Loading
from placer.workload.wrapped import compiled_mode

Mode = Literal["train", "infer"]
Data = Literal["host", "pinned", "device"]


@dataclass(frozen=True, eq=False)
class Workload:
    """One step of somebody's model, and how many such steps will follow.

    ``args`` and ``kwargs`` hold the example input: the user's own tensors, or meta float32 tensors made from
    ``batch_shape``. ``mode_given`` tells a mode that the caller gave from one that was read off the model.
    ``optimizer`` is a lower-case name or an instance in train mode, None in infer mode and for a step function that was
    given none (it runs its own). ``modules`` are what a placement moves. For a step function ``mode`` is a guess;
    ``Trace.mode`` says whether it trains. ``draw`` fills the weights that got no random numbers, for a step that has
    to run (see ``Undrawn``). ``loading`` is what each step waits for, and ``loop_calls`` how many Python
    functions the loop around it enters.
    """

    target: Callable[..., Any]
    modules: tuple[nn.Module, ...]
    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)
    mode: Mode = "train"
    mode_given: bool = False
    loss: Callable[..., Any] | None = None
    optimizer: str | torch.optim.Optimizer | None = None
    steps: int | None = None
    data: Data = "host"
    autocast: torch.dtype | None = None
    is_step_function: bool = False
    draw: Callable[[], None] | None = None
    loading: Loading | None = None
    loop_calls: int = 0

    @property
    def optimizer_name(self) -> str | None:
        """Lower-case name of the optimizer, None when there is none."""
        if self.optimizer is None or isinstance(self.optimizer, str):
            return self.optimizer
        return type(self.optimizer).__name__.lower()

    @cached_property
    def compiled(self) -> str | None:
        """The mode of ``torch.compile`` that the target was given; None where it was not."""
        return compiled_mode(self.target)

    @property
    def may_infer(self) -> bool:
        """Whether a step that cannot train is priced as inference: nobody said that it trains."""
        return self.mode == "train" and not self.mode_given and not self.is_step_function

    @property
    def is_shape(self) -> bool:
        """Whether an input is only a shape, without values."""
        return any(tensor.is_meta for tensor in tensors((self.args, self.kwargs)))
