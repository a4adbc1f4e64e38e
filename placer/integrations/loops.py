"""What the loops of libraries do around a step: batches are loaded, gradients accumulate and are clipped, Python runs.

A loop costs time of its own. It is counted in Python functions, which a job's parts take as ``loop_calls``.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

import placer
from placer.answer import Placement
from placer.workload import Loading, same_order

#: Batches that a loader is measured with, at most; the first two import, and open files.
_MOST_BATCHES = 22


class StepHooks:
    """``Placement.step`` for a library that calls one hook before a step and another one after it.

    A step that never ends, because it raised, is not recorded.
    """

    def __init__(self, placement: Placement) -> None:
        self.placement = placement
        self._step: AbstractContextManager[None] | None = None

    def begin(self) -> None:
        """Before a step."""
        self._step = self.placement.step()
        self._step.__enter__()

    def end(self) -> None:
        """After a step that did not raise."""
        step, self._step = self._step, None
        if step is not None:
            step.__exit__(None, None, None)


def switch(modules: Iterable[nn.Module], training: bool) -> None:
    """Set the mode of ``modules`` without entering a function of theirs: a library walks through them once an epoch."""
    for module in modules:
        vars(module)["training"] = training


def failing(error: Exception, modules: Sequence[nn.Module]) -> placer.Job:
    """A job whose step raises ``error``, in place of one that the user's own code does not let a library make.

    ``placer.choose`` falls back with a PlacerWarning, or raises under ``PLACER_STRICT=1``, as for any step that cannot
    be traced. ``modules``: what would run, whose size the convention looks at.
    """

    def step(nothing: torch.Tensor) -> None:
        raise error

    return placer.Job([placer.Part("training", step, example=(torch.empty(0),), modules=modules or nn.Module())])


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


def loading_of(loading: Any, loader: Iterable[Any]) -> Loading | float | None:
    """``loading`` as a part takes it; ``"measure"`` times ``loader``."""
    if isinstance(loading, str):
        if loading != "measure":
            raise ValueError(f'loading must be "measure", seconds, a placer.Loading or None, not {loading!r}')
        return Loading.of(loader)
    found: Loading | float | None = loading
    return found


def loading_between(
    loader: Any,
    step: Callable[[Any], object],
    *,
    clock: Callable[[], float] = time.thread_time,
    limit_seconds: float = 0.5,
) -> Loading:
    """Measure ``loader`` with ``step`` of each batch in between, whose own time does not count.

    Alone, a loader finds its code and data in the caches, which a step replaces. A loader with workers is measured
    alone, as they do not wait for steps. The thread's time leaves out other programs on the machine; give another
    ``clock`` for data that is waited for. It ends after about ``limit_seconds``, or after a step that takes longer.

    Raises:
        ValueError: a loader without batches.
    """
    if getattr(loader, "num_workers", 0):
        return Loading.of(loader, limit_seconds=limit_seconds)
    seconds: list[float] = []
    began = time.perf_counter()
    with same_order(loader):
        start = clock()
        for batch in loader:
            seconds.append(clock() - start)
            step(batch)
            if len(seconds) == _MOST_BATCHES or time.perf_counter() - began > limit_seconds:
                break
            start = clock()
    if not seconds:
        raise ValueError("the loader gave no batch, so what one takes cannot be measured")
    kept = seconds[2:] or seconds[-1:]
    return Loading(sum(kept) / len(kept))


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


class GradientStep(nn.Module):
    """A module's training step with what a loop does to its gradients, in ops of the same sizes.

    Before the step each parameter gets a gradient: its own values, as only their shapes matter. They are clipped, and
    kept where the backward pass adds to gradients that are there. The module's output is the output.
    """

    def __init__(self, module: nn.Module, clips: Clipping | None, accumulates: bool) -> None:
        super().__init__()
        self.module = module
        self.clips, self.accumulates = clips, accumulates

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


def training_parts(
    step: nn.Module, batches: int, *, accumulate: int, clips: Clipping | None, update: int, micro: int, **part: Any
) -> list[placer.Part]:
    """The part "training" of steps with an update, and with accumulation the part "accumulation" of those without.

    ``batches`` are those of one repeat of the job: every ``accumulate``-th and the last one are followed by an update.
    ``update`` and ``micro`` are the loop's calls around them, ``part`` other arguments of a ``Part``.
    """
    updates = math.ceil(batches / accumulate)
    training = placer.Part(
        "training", _around(step, clips, accumulate > 1), count=updates, mode="train", loop_calls=update, **part
    )
    if batches == updates:
        return [training]
    # The first batch after an update finds no gradients to add to.
    without = placer.Part(
        "accumulation", _around(step, None, accumulate > 2), count=batches - updates, mode="train",
        loop_calls=micro, **part,
    )  # fmt: skip
    return [without.changed(workload=dataclasses.replace(without.workload, optimizer=None)), training]


def _around(step: nn.Module, clips: Clipping | None, accumulates: bool) -> nn.Module:
    return GradientStep(step, clips, accumulates) if clips or accumulates else step


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
