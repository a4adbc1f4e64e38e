"""The data of a workload: one step of somebody's model, and how many such steps will follow."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import torch
from torch import nn

from placer.workload.compiled_modules import compiled_mode
from placer.workload.loading import Loading
from placer.workload.signature import callable_signature, optimizer_signature, signature

Mode = Literal["train", "infer"]
Data = Literal["host", "pinned", "device"]


@dataclass(frozen=True, eq=False)
class Workload:
    """One step of somebody's model, and how many such steps will follow.

    ``args`` and ``kwargs`` hold the example input: the user's own tensors, or meta float32 tensors made from
    ``batch_shape``. ``optimizer`` is a lower-case name or an instance in train mode, None in infer mode and for a step
    function that was given none (it runs its own). ``modules`` are what a placement moves. For a step function ``mode``
    is a guess; ``Trace.mode`` says whether it trains. ``draw`` fills the weights whose initialisation is deferred, for
    a step that has to run (see ``DeferredInit``). ``loading`` is what each step waits for, and ``loop_calls`` how many
    Python functions the loop around it enters. ``on_cpu`` are the submodules that stay on the CPU while the rest runs
    on an accelerator.
    """

    target: Callable[..., Any]
    modules: tuple[nn.Module, ...]
    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)
    mode: Mode = "train"
    loss: Callable[..., Any] | None = None
    optimizer: str | torch.optim.Optimizer | None = None
    steps: int | None = None
    data: Data = "host"
    autocast: torch.dtype | None = None
    is_step_function: bool = False
    draw: Callable[[], None] | None = None
    loading: Loading | None = None
    loop_calls: int = 0
    on_cpu: tuple[str, ...] = ()

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

    @cached_property
    def signature(self) -> Hashable:
        """All but the model and the values of tensors: equal for workloads that cost the same on equal models."""
        return (
            self.mode,
            self.data,
            self.autocast,
            self.steps,
            callable_signature(self.loss),
            optimizer_signature(self.optimizer),
            signature(self.args),
            signature(self.kwargs),
            self.loading,
            self.loop_calls,
            self.compiled,
        )
