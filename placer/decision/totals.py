"""Steps of several kinds added up: what a decision asks of the whole that they are parts of."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from placer.decision.objective import counted_seconds
from placer.pricing import Prediction, Provenance, weakest


@dataclass(frozen=True)
class Total:
    """Several steps as one, with what a ``Prediction`` says of one; times in seconds, memory in bytes."""

    device: str
    threads: int
    step_seconds: float
    low: float
    high: float
    one_time_seconds: float
    total_seconds: float | None
    components: Mapping[str, float]
    peak_memory_bytes: int
    available_memory_bytes: int | None
    fits: bool
    coverage: float
    provenance: Provenance
    one_time: Mapping[str, float] = field(default_factory=dict)
    bounded_by: str | None = None
    watts: float | None = None


def total(
    device: str,
    threads: int,
    parts: Sequence[tuple[float, Prediction]],
    *,
    models: Sequence[Hashable] = (),
    repeats: int | None = None,
) -> Total:
    """The sum of ``parts``, pairs of how often a step runs and the step.

    Errors of the parts are taken to go the same way, which gives the widest interval: the ends of the 90 % intervals
    are added up. ``models`` tells which parts share their weights (those of equal entries; none given: all do). Parts
    share the context and the libraries, and those of one model its weights and its memory: the largest counts. Memory
    and weights of several models are added up. The whole is bounded by what bounds its longest part, and draws the mean
    power of its parts. ``repeats`` is how often the whole runs. Raises ValueError without parts.
    """
    if not parts:
        raise ValueError("a total needs at least one part")
    _, longest = max(parts, key=lambda part: part[0] * part[1].step_seconds)
    components: dict[str, float] = {}
    for count, step in parts:
        for name, seconds in step.components.items():
            components[name] = components.get(name, 0.0) + count * seconds
    model_of = list(models) or [None] * len(parts)
    needed, weights, shared = dict.fromkeys(model_of, 0), dict.fromkeys(model_of, 0.0), dict[str, float]()
    for model, (_, step) in zip(model_of, parts, strict=True):
        needed[model] = max(needed[model], step.peak_memory_bytes)
        weights[model] = max(weights[model], step.one_time.get("weights", 0.0))
        for name, seconds in step.one_time.items():
            shared[name] = max(shared.get(name, 0.0), seconds)
    if any(weights.values()):
        shared["weights"] = sum(weights.values())
    if "compilation" in shared:  # each part is a graph of its own
        shared["compilation"] = sum(step.one_time.get("compilation", 0.0) for _, step in parts)
    available = [step.available_memory_bytes for _, step in parts if step.available_memory_bytes is not None]
    room = max(available, default=None)
    seconds = sum(count * step.step_seconds for count, step in parts)
    covered = sum(count * step.step_seconds * step.coverage for count, step in parts)
    joules = [count * step.step_seconds * step.watts for count, step in parts if step.watts is not None]
    found = Total(
        device=device,
        threads=threads,
        step_seconds=seconds,
        low=sum(count * step.low for count, step in parts),
        high=sum(count * step.high for count, step in parts),
        one_time_seconds=sum(shared.values()),
        total_seconds=None,
        components=components,
        peak_memory_bytes=sum(needed.values()),
        available_memory_bytes=room,
        fits=all(step.fits for _, step in parts) and (room is None or sum(needed.values()) <= room),
        coverage=covered / seconds if seconds else 1.0,
        provenance=weakest(step.provenance for _, step in parts),
        one_time=shared,
        bounded_by=longest.bounded_by,
        watts=sum(joules) / seconds if seconds and len(joules) == len(parts) else None,
    )
    return found if repeats is None else replace(found, total_seconds=counted_seconds(found, repeats))
