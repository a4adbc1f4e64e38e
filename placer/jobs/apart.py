"""Parts of a job on different devices: which is the fastest way to share them out, and what it costs to do so."""

from __future__ import annotations

import itertools
import math
from collections.abc import Container, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from placer.decision import total
from placer.explanation import ApartRow
from placer.pricing import Prediction, timeline
from placer.tracing import TensorSpec

#: Beyond so many ways to share parts out, each part is tried on its fastest device, alone and with all others.
_MOST_WAYS = 500


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


class Apart(ApartRow):
    """What an explanation tells of parts on several devices, with what it takes to place them so."""

    def homes(self, steps: Sequence[Step]) -> dict[Hashable, str]:
        """Where each model is: on the device where it is trained, else where it runs first."""
        return _homes(steps, [self.devices[step.name] for step in steps])

    def seconds(self, repeats: int | None) -> float:
        """Of one job in a long run, else of all its repeats with what is paid once."""
        return self.step_seconds if repeats is None else self.one_time_seconds + repeats * self.step_seconds


def best_apart(steps: Sequence[Step], repeats: int | None = None, *, placeable: bool = False) -> Apart | None:
    """The fastest way to share ``steps`` out to at least two devices; None where there is none.

    Parts that train one model stay together. ``placeable``: leave out the ways that ``placer.choose`` cannot go.
    """
    found: Apart | None = None
    for names in _ways(steps):
        if len(set(names)) < 2 or not _possible(steps, names, placeable):
            continue
        way = _priced(steps, names)
        if way is not None and (found is None or way.seconds(repeats) < found.seconds(repeats)):
            found = way
    return found


def _ways(steps: Sequence[Step]) -> Iterator[tuple[str, ...]]:
    """Devices for all steps, those of one machine at a time."""
    every = {name for step in steps for name in step.predictions}
    machines = {name: _machine(name, every) for name in every}
    for machine in dict.fromkeys(machines.values()):
        own = [[name for name in step.predictions if machines[name] == machine] for step in steps]
        if not all(own):
            continue
        if math.prod(map(len, own)) <= _MOST_WAYS:
            yield from itertools.product(*own)
            continue
        fastest = [min(names, key=lambda n: s.predictions[n].step_seconds) for s, names in zip(steps, own, strict=True)]
        yield tuple(fastest)
        for common in {name for names in own for name in names}:
            together = [common if common in names else best for names, best in zip(own, fastest, strict=True)]
            for changed, best in enumerate(fastest):
                yield (*together[:changed], best, *together[changed + 1 :])


def _machine(name: str, every: Container[str]) -> str:
    """The machine of a device: another one has a CPU of its own, and a GPU without one is thought beside this one's."""
    _, _, other = name.partition("@")
    return other if other and f"cpu@{other}" in every else ""


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
    wholes = []
    for device in dict.fromkeys(names):
        here = [(step, p) for step, p, name in zip(steps, chosen, names, strict=True) if name == device]
        rows = [(step.count, p) for step, p in here]
        wholes.append(total(device, here[0][1].threads, rows, models=[step.model for step, _ in here]))
    if not all(whole.fits for whole in wholes):
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
    return Apart(
        devices={step.name: name for step, name in zip(steps, names, strict=True)},
        step_seconds=sum(whole.step_seconds for whole in wholes) + seconds,
        low=sum(whole.low for whole in wholes) + seconds,
        high=sum(whole.high for whole in wholes) + seconds,
        one_time_seconds=sum(whole.one_time_seconds for whole in wholes),
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
