"""What the loops of libraries do around a step: batches are loaded, gradients accumulate and are clipped, Python runs.

A loop costs time of its own. It is counted in Python functions, which a job's parts take as ``loop_calls``.
"""

from __future__ import annotations

import dataclasses
import itertools
import logging
import math
import operator
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

import torch
from torch import nn
from torch.utils.data import DataLoader

import placer
from placer.errors import TraceError, first_line
from placer.tracing import child
from placer.workload import Loading, is_stream, measure_loading, same_order

T = TypeVar("T")

#: Batches that a loader is measured with, at most; the first two import, and open files.
MOST_BATCHES = 22
_log = logging.getLogger("placer")


def choose_job(make: Callable[[], placer.Job], modules: Sequence[nn.Module], **options: Any) -> placer.JobPlacement:
    """``placer.choose`` of the job that ``make`` makes; nothing is moved.

    Where ``make`` raises, nothing can be predicted: there is one PlacerWarning, and the default rule decides for
    ``modules``. ``options`` are other arguments of ``placer.choose``. Raises ValueError, TypeError for a wrong one.
    """
    try:
        job = make()
    except Exception as error:  # noqa: BLE001 - boundary: frameworks run the user's own code, which may raise anything
        job = _failing(error, modules)
    return placer.choose(job, move=False, **options)


def _failing(error: Exception, modules: Sequence[nn.Module]) -> placer.Job:
    """A job whose step raises ``error``: ``placer.choose`` treats it as any step that cannot be traced."""

    def step(nothing: torch.Tensor) -> None:
        raise error

    return placer.Job([placer.Part("training", step, batch=(torch.empty(0),), modules=modules or nn.Module())])


def keep(argument: str) -> None:
    """Say, as one INFO record of the logger ``placer``, that an ``argument`` of the caller's decides and not placer."""
    _log.info("%s was given, so nothing is predicted", argument)


def first_batch(loader: Iterable[Any]) -> Any:
    """The first batch of ``loader``, which still gives it afterwards; random generators are as before.

    Raises ValueError where there is none, TypeError for an iterator, which has no second epoch, and for a stream that
    gives the batch in no other process.
    """
    if isinstance(loader, Iterator):
        raise TypeError("a loader must give its batches again each epoch: give a DataLoader or a list, not an iterator")
    if is_stream(loader):
        batches = drawn_apart(loader, lambda stream: list(itertools.islice(stream, 1)))
    else:
        with same_order(loader):
            batches = list(itertools.islice(loader, 1))
    if not batches:
        raise ValueError("the loader gave no batch, so there is no step to price")
    return batches[0]


def drawn_apart(loader: Any, function: Callable[[Any], T]) -> T:
    """What ``function`` makes of a stream's batches in a forked child: here, none of them is missing.

    The child starts no workers. Raises TypeError where it cannot be forked, or gives no answer.
    """

    def draw() -> T:
        if isinstance(loader, DataLoader):
            loader.num_workers, loader.timeout, loader.pin_memory = 0, 0, False
        return function(loader)

    try:
        return child.call(draw)
    except (TraceError, child.NoChild) as error:
        why = first_line(error) if isinstance(error, TraceError) else "this system forks no process"
        raise TypeError(
            f"the loader is a stream, and its first batches cannot be looked at in another process ({why}): "
            "give a list of some of its batches in its place"
        ) from error


def measured_loading(loader: Any, limit_seconds: float = 5.0) -> Loading:
    """``Loading.of``, also for a stream, whose batches are timed in a child that has no workers and so divides."""
    if not is_stream(loader):
        return Loading.of(loader, limit_seconds=limit_seconds)
    workers = getattr(loader, "num_workers", 0)
    alone = drawn_apart(loader, partial(measure_loading, limit_seconds=limit_seconds))
    return Loading(alone.seconds / max(workers, 1), overlapped=workers > 0)


def loaded(loader: Any, loading: Any) -> dict[str, Any]:
    """What a ``Part`` takes of a loader: its ``batch``, as the first one stands for all, and its ``loading``.

    The argument ``loading`` is what a part takes, or ``"measure"``, which times the loader.
    """
    if isinstance(loading, str) and loading != "measure":
        raise ValueError(f'loading must be "measure", seconds, a placer.Loading or None, not {loading!r}')
    batch = first_batch(loader)
    return {"batch": batch, "loading": measured_loading(loader) if loading == "measure" else loading}


def loading_between(
    loader: Any,
    step: Callable[[Any], object],
    *,
    clock: Callable[[], float] = time.thread_time,
    limit_seconds: float = 0.5,
    most: int = MOST_BATCHES,
) -> Loading:
    """Measure ``loader`` with ``step`` of each batch in between, whose own time does not count, for some time.

    Alone, a loader finds its code and data in the caches, which a step replaces. A loader with workers is measured
    alone, as they do not wait for steps, and so is a stream; an iterator is the caller's, to be used up. ``most``:
    batches at most. The thread's time leaves out other programs on the machine; give another ``clock`` for data that is
    waited for. Raises ValueError for a loader without batches.
    """
    if getattr(loader, "num_workers", 0) or (is_stream(loader) and not isinstance(loader, Iterator)):
        return measured_loading(loader, limit_seconds)
    seconds: list[float] = []
    began = time.perf_counter()
    with same_order(loader):
        start = clock()
        for batch in loader:
            seconds.append(clock() - start)
            step(batch)
            if len(seconds) == most or time.perf_counter() - began > limit_seconds:
                break
            start = clock()
    if not seconds:
        raise ValueError("the loader gave no batch, so what one takes cannot be measured")
    warmed_up = seconds[2:] or seconds[-1:]
    return Loading(sum(warmed_up) / len(warmed_up))


class GradientStep(nn.Module):
    """A module's training step with what a loop does to its gradients, in ops of the same sizes.

    Before the step each parameter gets a gradient: its own values, as only their shapes matter. ``clip`` is called with
    the parameters. The gradients are kept where the backward pass adds to gradients that are there.
    """

    def __init__(self, module: nn.Module, clip: Callable[[Any], object] | None, accumulates: bool) -> None:
        super().__init__()
        self.module = module
        self.clip, self.accumulates = clip, accumulates

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        trained = [parameter for parameter in self.module.parameters() if parameter.requires_grad]
        for parameter in trained:
            parameter.grad = parameter.data
        if self.clip is not None:
            self.clip(trained)
        if not self.accumulates:
            for parameter in trained:
                parameter.grad = None
        return self.module(*args, **kwargs)


def training_parts(
    step: nn.Module,
    batches: int,
    *,
    accumulate: int,
    clip: Callable[[Any], object] | None,
    update: int,
    micro: int,
    **part: Any,
) -> list[placer.Part]:
    """The part "training" of steps with an update, and with accumulation the part "accumulation" of those without.

    ``batches`` are those of one repeat of the job: every ``accumulate``-th and the last one are followed by an update.
    ``update`` and ``micro`` are the loop's calls around them, ``part`` other arguments of a ``Part``.
    """
    updates = math.ceil(batches / accumulate)
    whole_step = GradientStep(step, clip, accumulate > 1) if clip or accumulate > 1 else step
    parts = [placer.Part("training", whole_step, count=updates, mode="train", loop_calls=update, **part)]
    if batches > updates:
        # The first batch after an update finds no gradients to add to.
        small = GradientStep(step, None, True) if accumulate > 2 else step
        without = placer.Part("accumulation", small, count=batches - updates, mode="train", loop_calls=micro, **part)
        parts.insert(0, without.changed(workload=dataclasses.replace(without.workload, optimizer=None)))
    return parts


def whole(name: str, number: Any) -> int:
    """``number`` if it is a whole number of at least 1, else ValueError."""
    if isinstance(number, float) and number.is_integer():  # total_timesteps=1e5
        number = int(number)
    if isinstance(number, bool) or not hasattr(number, "__index__") or number < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, not {number!r}")
    return operator.index(number)
