"""What training loops of libraries do around a module: gradients accumulate and are clipped, and Python runs.

A loop costs time of its own. It is counted in Python functions, which a job's parts take as ``loop_calls``.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

import placer
from placer.workload import same_order


@dataclass(frozen=True)
class Loop:
    """What a loop does for each step, beside the step.

    ``functions`` are the Python functions it enters, as the interpreter counts them. ``worth`` is how many functions of
    average length take as long as the loop does, its own small ops included.
    """

    functions: int
    worth: int


class GradientStep(nn.Module):
    """A module's training step with what a loop does to its gradients, in ops of the same sizes.

    Before the step each parameter gets a gradient: its own values, as only their shapes matter. They are clipped, and
    kept where the backward pass adds to gradients that are there. The module's output is the output.
    """

    def __init__(self, module: nn.Module, *, clips: Clipping | None = None, accumulates: bool = False) -> None:
        super().__init__()
        self.module = module
        self.clips, self.accumulates = clips, accumulates  # public: they count in the signature of a module

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        trained = [parameter for parameter in self.module.parameters() if parameter.requires_grad]
        if self.clips is not None or self.accumulates:
            for parameter in trained:
                parameter.grad = parameter.data
        if self.clips is not None:
            self.clips(trained)
        if not self.accumulates:
            for parameter in trained:
                parameter.grad = None
        return self.module(*args, **kwargs)


@dataclass(frozen=True)
class Clipping:
    """Gradient clipping to ``most``: of the norm of all gradients, or of each value."""

    most: float
    by_value: bool = False

    def __call__(self, parameters: list[nn.Parameter]) -> None:
        if self.by_value:
            nn.utils.clip_grad_value_(parameters, self.most)
        else:
            nn.utils.clip_grad_norm_(parameters, self.most)


def training_parts(
    step: nn.Module, batches: int, *, accumulate: int, clips: Clipping | None, update: int, micro: int, **part: Any
) -> list[placer.Part]:
    """The part "training" of steps with an update, and with accumulation the part "accumulation" of those without.

    ``batches`` are those of one repeat of the job: every ``accumulate``-th and the last one are followed by an update.
    ``part``: other arguments of a ``Part``.
    """
    updates = math.ceil(batches / accumulate)
    training = placer.Part(
        "training", _around(step, clips, accumulates=accumulate > 1), count=updates, mode="train",
        loop_calls=update, **part,
    )  # fmt: skip
    if batches == updates:
        return [training]
    # The first batch after an update finds no gradients to add to.
    without = placer.Part(
        "accumulation", _around(step, None, accumulates=accumulate > 2), count=batches - updates, mode="train",
        loop_calls=micro, **part,
    )  # fmt: skip
    return [without.changed(workload=dataclasses.replace(without.workload, optimizer=None)), training]


def _around(step: nn.Module, clips: Clipping | None, accumulates: bool) -> nn.Module:
    return GradientStep(step, clips=clips, accumulates=accumulates) if clips or accumulates else step


def first_batch(loader: Iterable[Any]) -> Any:
    """The first batch of ``loader``; random generators are as before.

    Raises ValueError where there is none, TypeError for an iterator, which has that batch only once.
    """
    if isinstance(loader, Iterator):
        raise TypeError("a loader must give its batches again each epoch: give a DataLoader or a list, not an iterator")
    with same_order(loader):
        for batch in loader:
            return batch
    raise ValueError("the loader gave no batch, so there is no step to price")


def loading_of(loading: Any, loader: Iterable[Any]) -> placer.Loading | float | None:
    """``loading`` as a part takes it; ``"measure"`` times ``loader``."""
    if isinstance(loading, str):
        if loading != "measure":
            raise ValueError(f'loading must be "measure", seconds, a placer.Loading or None, not {loading!r}')
        return placer.Loading.of(loader)
    found: placer.Loading | float | None = loading
    return found


def check_names(given: Mapping[str, Any], known: Iterable[str], owner: str) -> None:
    """Raise TypeError for an argument that ``owner`` does not have."""
    unknown = [name for name in given if name not in set(known)]
    if unknown:
        raise TypeError(f"{owner} has no argument {', '.join(map(repr, unknown))}")


def whole(name: str, number: Any, least: int = 1) -> int:
    """``number`` if it is a whole number of at least ``least``, else ValueError."""
    if isinstance(number, bool) or not isinstance(number, int) or number < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, not {number!r}")
    return number


def loss_of(output: Any) -> Tensor:
    """The loss in what a training step returns: a tensor, or a mapping with the entry ``loss``."""
    loss: Tensor = output if isinstance(output, Tensor) else output["loss"]
    return loss


def enter_functions(number: int) -> None:
    """Enter so many Python functions: what tracing counts in place of library code that cannot run in a trace."""
    for _ in range(number):
        _function()


def _function() -> None: ...
