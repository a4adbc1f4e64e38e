"""The answer of ``choose`` for a job: where each part runs."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import cast

import torch
from torch import nn

from placer.answer import Placement
from placer.decision import Decision, Total
from placer.errors import PlacerError
from placer.explanation import Explanation
from placer.jobs.apart import Apart
from placer.jobs.pricing import PricedJob
from placer.placement import move_modules, move_optimizer, target
from placer.workload import Job


class JobPlacement(Placement):
    """Where a job runs, why, and how sure that is.

    Times of ``predictions`` are those of the whole job, by device; ``device`` is where all of it runs, or, of a job
    whose parts run apart, the longest part of it. ``parts`` has a ``Placement`` for each part, by name, and ``models``
    the module that runs it, for each part that has a module.
    """

    def __init__(
        self,
        job: Job,
        decision: Decision,
        predictions: Mapping[str, Total] | None = None,
        *,
        parts: Mapping[str, Placement] | None = None,
        apart: Apart | None = None,
        explain: Callable[[], Explanation] | None = None,
    ) -> None:
        super().__init__(decision, predictions, explain=explain)  # type: ignore[arg-type]
        self.parts: Mapping[str, Placement] = parts or {part.name: Placement(decision) for part in job.parts}
        self.apart = apart
        targets = {part.name: part.workload.target for part in job.parts}
        self.models: dict[str, nn.Module] = {n: model for n, model in targets.items() if isinstance(model, nn.Module)}
        self._copied: list[tuple[nn.Module, nn.Module]] = []

    def refresh(self) -> None:
        """Bring what was learnt since to the parts that run a copy of their model, on another device than it."""
        with torch.no_grad():
            for original, copied in self._copied:
                new = {**dict(original.named_parameters()), **dict(original.named_buffers())}
                for name, tensor in (*copied.named_parameters(), *copied.named_buffers()):
                    tensor.copy_(new[name])

    def step(self) -> AbstractContextManager[None]:
        """A job is many steps. Raises PlacerError: the steps of a part are timed by its own placement."""
        raise PlacerError("a job's steps are those of its parts: time them with placement.parts[name].step()")

    def place_apart(self, found: PricedJob, apart: Apart) -> None:
        """Move each model to the device where it is trained, or runs first; other parts of it get a copy on theirs.

        Raises what torch raises where a device refuses.
        """
        homes, copies = apart.homes(found.steps), dict[str, tuple[nn.Module, nn.Module]]()
        for part, model in zip(found.job.parts, found.models, strict=True):
            move_modules(part.workload.modules, target(homes[model]))
        for optimizer in found.job.optimizers:
            move_optimizer(optimizer)
        for part, model in zip(found.job.parts, found.models, strict=True):
            device = apart.devices[part.name]
            if device != homes[model]:
                original = cast(nn.Module, part.workload.target)
                copies[part.name] = original, _copy(original, target(device), train=part.workload.mode == "train")
        self.models |= {name: copied for name, (_, copied) in copies.items()}
        self._copied = list(copies.values())


def _copy(model: nn.Module, device: torch.device, *, train: bool) -> nn.Module:
    """A copy without gradients on another device."""
    copied = copy.deepcopy(model)
    for parameter in copied.parameters():
        parameter.grad = None
    move_modules([copied], device)
    return copied.train(train)
