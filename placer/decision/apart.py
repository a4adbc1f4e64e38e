"""Parts of a job on different devices: which is the fastest way to share them out, and what it costs to do so."""

from __future__ import annotations

import itertools
import math
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from placer.decision.advice import LEAST_GAIN
from placer.decision.comparison import PricedPart, Table, total
from placer.decision.decision import Decision, probability_faster
from placer.pricing import Prediction, timeline
from placer.tracing import TensorSpec
from placer.units import format_seconds

#: Beyond so many ways to share parts out, each part is tried on its fastest device, alone and with all others.
_MOST_WAYS = 500


@dataclass(frozen=True)
class Apart:
    """The fastest way to run the parts of a job on several devices: one for each part, by name.

    ``chosen`` tells that it is the choice. Times are those of one job. ``exchange_seconds`` of ``step_seconds`` copy
    ``exchange_bytes`` between the devices: trained weights go to the device of each part that only uses them.
    """

    devices: Mapping[str, str]
    step_seconds: float
    low: float
    high: float
    one_time_seconds: float
    exchange_seconds: float
    exchange_bytes: int
    chosen: bool = False

    def seconds(self, repeats: int | None) -> float:
        """Of one job in a long run, else of all its repeats with what is paid once."""
        return self.step_seconds if repeats is None else self.one_time_seconds + repeats * self.step_seconds

    @property
    def shares(self) -> str:
        """Which part runs where, in words."""
        return ", ".join(f"{name} on {device}" for name, device in self.devices.items())


def worth_it(table: Table, decision: Decision, *, placeable: bool = False) -> Apart | None:
    """The best way to share the parts out, where that saves at least ``LEAST_GAIN`` over ``decision``, one device.

    Or where the job fits on no single device. None where time is not the objective: a machine with both devices is
    paid for either way. ``placeable``: leave out the ways that ``placer.choose`` cannot go.
    """
    best = best_apart(table.parts, table.repeats, placeable=placeable) if table.objective.name == "time" else None
    if best is None:
        return None
    together = table.costs[decision.device]
    pays = best.seconds(table.repeats) <= (1.0 - LEAST_GAIN) * together.seconds
    return best if pays or not together.fits else None


def decide_apart(table: Table, apart: Apart, decision: Decision) -> Decision:
    """The decision to run the parts of a job apart, on the device of the longest part, and not as ``decision`` says."""
    longest = max(table.parts, key=lambda part: part.count * part.predictions[apart.devices[part.name]].step_seconds)
    device, together = apart.devices[longest.name], table.costs[decision.device]
    shared = replace(
        together, step_seconds=apart.step_seconds, low=apart.low, high=apart.high,
        one_time_seconds=apart.one_time_seconds,
    )  # fmt: skip
    seconds = apart.seconds(table.repeats)
    return replace(
        decision,
        device=device,
        confidence=probability_faster(shared, together, table.repeats),
        speedup=together.seconds / seconds if seconds else None,
        reason=f"{device}: parts on separate devices ({apart.shares}) take "
        f"{format_seconds(apart.step_seconds)}, and all on {together.device} {format_seconds(together.step_seconds)}",
    )


def best_apart(parts: Sequence[PricedPart], repeats: int | None = None, *, placeable: bool = False) -> Apart | None:
    """The fastest way to share parts out to at least two devices; None where there is none.

    Parts that train one model stay together.
    """
    found: Apart | None = None
    for names in _ways(parts):
        if len(set(names)) < 2 or not _possible(parts, names, placeable):
            continue
        way = _priced(parts, names)
        if way is not None and (found is None or way.seconds(repeats) < found.seconds(repeats)):
            found = way
    return found


def homes(parts: Sequence[PricedPart], names: Sequence[str]) -> dict[int, str]:
    """Where each model is: on the device where it is trained, else where it runs first."""
    found: dict[int, str] = {}
    for part, name in sorted(zip(parts, names, strict=True), key=lambda row: not row[0].trains):
        found.setdefault(part.model, name)
    return found


def _ways(parts: Sequence[PricedPart]) -> Iterator[tuple[str, ...]]:
    """Devices for all parts, those of one machine at a time."""
    every = {name for part in parts for name in part.predictions}
    machines = {name: _machine(name, every) for name in every}
    for machine in dict.fromkeys(machines.values()):
        own = [[name for name in part.predictions if machines[name] == machine] for part in parts]
        if not all(own):
            continue
        if math.prod(map(len, own)) <= _MOST_WAYS:
            yield from itertools.product(*own)
            continue
        fastest = [
            min(names, key=lambda name: part.predictions[name].step_seconds)
            for part, names in zip(parts, own, strict=True)
        ]
        yield tuple(fastest)
        for common in {name for names in own for name in names}:
            together = [common if common in names else best for names, best in zip(own, fastest, strict=True)]
            for changed, best in enumerate(fastest):
                yield (*together[:changed], best, *together[changed + 1 :])


def _machine(name: str, every: Container[str]) -> str:
    """The machine of a device: another one has a CPU of its own, and a GPU without one is thought beside this one's."""
    _, _, other = name.partition("@")
    return other if other and f"cpu@{other}" in every else ""


def _possible(parts: Sequence[PricedPart], names: Sequence[str], placeable: bool) -> bool:
    """Whether each model is trained on one device, and what else uses it can have a copy."""
    trained: dict[int, str] = {}
    for part, name in zip(parts, names, strict=True):
        if part.trains and trained.setdefault(part.model, name) != name:
            return False
    if not placeable:
        return True
    home = homes(parts, names)
    return all(part.movable or home[part.model] == name for part, name in zip(parts, names, strict=True))


def _priced(parts: Sequence[PricedPart], names: Sequence[str]) -> Apart | None:
    """What a way to share parts out takes; None where a part does not fit on its device."""
    chosen = [part.predictions[name] for part, name in zip(parts, names, strict=True)]
    wholes = []
    for device in dict.fromkeys(names):
        here = [(part, found) for part, found, name in zip(parts, chosen, names, strict=True) if name == device]
        rows = [(part.count, found) for part, found in here]
        wholes.append(total(device, here[0][1].threads, rows, models=[part.model for part, _ in here]))
    if not all(each.fits for each in wholes):
        return None
    seconds, size = 0.0, 0
    trained = {part.model: found for part, found in zip(parts, chosen, strict=True) if part.trains}
    copied: set[tuple[int, str]] = set()
    for part, prediction in zip(parts, chosen, strict=True):
        source = trained.get(part.model)
        if source is None or source.device == prediction.device or (part.model, prediction.device) in copied:
            continue
        copied.add((part.model, prediction.device))
        trace = prediction.priced.trace
        weights = (*trace.parameters, *trace.buffers)
        seconds += _copy_seconds(weights, source, prediction)
        size += sum(spec.stored_bytes for spec in weights)
    return Apart(
        devices={part.name: name for part, name in zip(parts, names, strict=True)},
        step_seconds=sum(each.step_seconds for each in wholes) + seconds,
        low=sum(each.low for each in wholes) + seconds,
        high=sum(each.high for each in wholes) + seconds,
        one_time_seconds=sum(each.one_time_seconds for each in wholes),
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
