"""Parts of a job on different devices: which is the fastest way to share them out, and what it costs to do so."""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

from placer.pricing import Prediction, timeline
from placer.tracing import TensorSpec

#: Beyond so many ways to share parts out, only a part more or less than the best single device is tried.
_MOST_WAYS = 5_000


@dataclass(frozen=True)
class Step:
    """A part as it is shared out: predictions of a step by device, and which model it uses.

    ``model`` is equal for parts that share weights. ``placeable`` tells that a copy of the model can run the part.
    """

    name: str
    count: float
    predictions: Mapping[str, Prediction]
    model: Hashable
    placeable: bool = True

    @property
    def trains(self) -> bool:
        return any(p.priced.trace.mode == "train" for p in self.predictions.values())


@dataclass(frozen=True)
class Apart:
    """A device for each part, by name. Seconds and bytes are those of one job.

    ``exchange_seconds`` of ``step_seconds``, and ``exchange_bytes``, are what passes between the devices: trained
    weights go to the device of each part that only uses them.
    """

    devices: Mapping[str, str]
    step_seconds: float
    low: float
    high: float
    one_time_seconds: float
    exchange_seconds: float
    exchange_bytes: int

    def homes(self, steps: Sequence[Step]) -> dict[Hashable, str]:
        """Where each model is: on the device where it is trained, else where it runs first."""
        return _homes(steps, [self.devices[step.name] for step in steps])

    def seconds(self, repeats: int | None) -> float:
        """Of one job in a long run, else of all its repeats with what is paid once."""
        return self.step_seconds if repeats is None else self.one_time_seconds + repeats * self.step_seconds


def best_apart(
    steps: Sequence[Step], devices: Sequence[str], repeats: int | None = None, *, placeable: bool = False
) -> Apart | None:
    """The fastest way to share ``steps`` out to at least two of ``devices``; None where there is none.

    Parts that train one model stay together. ``placeable``: leave out the ways that ``placer.choose`` cannot go.
    """
    found: Apart | None = None
    for names in _ways(steps, devices):
        if len(set(names)) < 2 or not _possible(steps, names, placeable):
            continue
        way = _priced(steps, names)
        if way is not None and (found is None or way.seconds(repeats) < found.seconds(repeats)):
            found = way
    return found


def _ways(steps: Sequence[Step], devices: Sequence[str]) -> list[tuple[str, ...]]:
    if len(devices) ** len(steps) <= _MOST_WAYS:
        return list(itertools.product(devices, repeat=len(steps)))
    alone = [
        tuple(own if index == changed else common for index in range(len(steps)))
        for common in devices for own in devices for changed in range(len(steps))
    ]  # fmt: skip
    return [tuple(min(devices, key=lambda d: step.predictions[d].step_seconds) for step in steps), *alone]


def _possible(steps: Sequence[Step], names: Sequence[str], placeable: bool) -> bool:
    """Whether each model is trained on one device, and what else uses it can have a copy."""
    trained: dict[Hashable, str] = {}
    for step, name in zip(steps, names, strict=True):
        if step.trains and trained.setdefault(step.model, name) != name:
            return False
    if not placeable:
        return True
    homes = _homes(steps, names)
    return all(step.placeable or homes[step.model] == name for step, name in zip(steps, names, strict=True))


def _homes(steps: Sequence[Step], names: Sequence[str]) -> dict[Hashable, str]:
    homes: dict[Hashable, str] = {}
    for step, name in sorted(zip(steps, names, strict=True), key=lambda row: not row[0].trains):
        homes.setdefault(step.model, name)
    return homes


def _priced(steps: Sequence[Step], names: Sequence[str]) -> Apart | None:
    """What a way to share steps out takes; None where a part does not fit on its device."""
    chosen = [step.predictions[name] for step, name in zip(steps, names, strict=True)]
    if not all(prediction.fits for prediction in chosen):
        return None
    seconds, size = 0.0, 0
    trained = {step.model: p for step, p in zip(steps, chosen, strict=True) if step.trains}
    copied: set[tuple[Hashable, str]] = set()
    for step, prediction in zip(steps, chosen, strict=True):
        source = trained.get(step.model)
        if source is None or source.device == prediction.device or (step.model, prediction.device) in copied:
            continue
        copied.add((step.model, prediction.device))
        trace = prediction.priced.trace
        weights = (*trace.parameters, *trace.buffers)
        seconds += _copy_seconds(weights, source, prediction)
        size += sum(spec.stored_bytes for spec in weights)
    once: dict[str, float] = {}
    for prediction in chosen:
        once[prediction.device] = max(once.get(prediction.device, 0.0), prediction.one_time_seconds)

    def added(ends: Sequence[float]) -> float:
        return math.fsum(step.count * end for step, end in zip(steps, ends, strict=True)) + seconds

    return Apart(
        devices={step.name: name for step, name in zip(steps, names, strict=True)},
        step_seconds=added([p.step_seconds for p in chosen]),
        low=added([p.low for p in chosen]),
        high=added([p.high for p in chosen]),
        one_time_seconds=sum(once.values()),
        exchange_seconds=seconds,
        exchange_bytes=size,
    )


def _copy_seconds(weights: Sequence[TensorSpec], source: Prediction, to: Prediction) -> float:
    """Seconds for weights to go from one device to another, by way of the host."""
    sizes = tuple(spec.stored_bytes for spec in weights)
    seconds = 0.0
    for prediction, direction in ((source, "d2h"), (to, "h2d")):
        fit = prediction.priced.fit
        if prediction.priced.device != "cpu" and fit is not None:
            seconds += timeline.copy_seconds(sizes, fit, direction, "pageable")
    return seconds
