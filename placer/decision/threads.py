"""Which number of CPU threads: the step predicted for each calibrated count, and one of them chosen."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch

from placer.pricing import Prediction
from placer.units import format_seconds

#: The number of threads a process has is kept unless another one saves more than this share of the step: two counts
#: share most of a prediction's error, and changing the setting touches the whole process.
TIE = 0.05


@dataclass(frozen=True)
class ThreadOption:
    """A step on the CPU with this many threads, in seconds; ``low`` and ``high`` bound a 90 % interval.

    ``current`` tells the number of threads that the process has.
    """

    threads: int
    current: bool
    step_seconds: float
    low: float
    high: float


def best_count(steps: Mapping[int, float], now: int) -> int:
    """The number of threads with the shortest step; ``now`` where none is shorter by more than the tie.

    ``steps`` maps numbers of threads to seconds. Of equal steps the fewest threads win.

    Raises:
        ValueError: no steps.
    """
    if not steps:
        raise ValueError("best_count() needs the step of at least one number of threads")
    best = min(steps, key=lambda count: (steps[count], count))
    return now if now in steps and steps[best] >= steps[now] * (1.0 - TIE) else best


def options(tried: Mapping[int, Prediction], now: int) -> tuple[ThreadOption, ...]:
    """The alternatives as plain numbers, ascending by threads; ``now`` is what the process has."""
    return tuple(
        ThreadOption(count, count == now, prediction.step_seconds, prediction.low, prediction.high)
        for count, prediction in sorted(tried.items())
    )


def reason(chosen: int, tried: tuple[ThreadOption, ...]) -> str:
    """Half a sentence on the number of threads; empty where only one was compared."""
    if len(tried) < 2:
        return ""
    steps = {option.threads: option.step_seconds for option in tried}
    now = next((option.threads for option in tried if option.current), None)
    if now is not None and chosen != now:
        return f", with {_threads(chosen)}: with {now} a step would take {format_seconds(steps[now])}"
    if steps[chosen] > min(steps.values()):
        return f", with {_threads(chosen)} as now: no other number is much faster"
    return f", with {_threads(chosen)}: the best of {_listed(steps)}"


def _threads(count: int) -> str:
    return f"{count} thread" if count == 1 else f"{count} threads"


def _listed(steps: Mapping[int, float]) -> str:
    *first, last = map(str, sorted(steps))
    return f"{', '.join(first)} and {last}"


@contextlib.contextmanager
def running_with(count: int) -> Iterator[None]:
    """The body runs with ``count`` of torch's intra-op threads, whatever follows with as many as before."""
    before = torch.get_num_threads()
    if count == before:
        yield
        return
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
