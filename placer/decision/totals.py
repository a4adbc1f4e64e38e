"""Steps of several kinds added up: what a decision asks of the whole that they are parts of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol


class Step(Protocol):
    """The times and needs of one step on a device, as a ``Prediction`` has them."""

    @property
    def step_seconds(self) -> float: ...
    @property
    def low(self) -> float: ...
    @property
    def high(self) -> float: ...
    @property
    def one_time_seconds(self) -> float: ...
    @property
    def components(self) -> Mapping[str, float]: ...
    @property
    def peak_memory_bytes(self) -> int: ...
    @property
    def available_memory_bytes(self) -> int | None: ...
    @property
    def fits(self) -> bool: ...
    @property
    def bounded_by(self) -> str | None: ...


@dataclass(frozen=True)
class Total:
    """Several steps as one, for ``decide``; times in seconds, memory in bytes."""

    device: str
    threads: int
    step_seconds: float
    low: float
    high: float
    one_time_seconds: float
    components: Mapping[str, float]
    peak_memory_bytes: int
    available_memory_bytes: int | None
    fits: bool
    bounded_by: str | None


def total(device: str, threads: int, parts: Sequence[tuple[float, Step]]) -> Total:
    """The sum of ``parts``, pairs of how often a step runs and the step.

    Errors of the parts are taken to go the same way, which gives the widest interval: the ends of the 90 % intervals
    are added up. Parts share context, libraries and weights: of one-time costs and memory the largest counts. The whole
    is bounded by what bounds its longest part. Raises ValueError without parts.
    """
    if not parts:
        raise ValueError("a total needs at least one part")
    _, longest = max(parts, key=lambda part: part[0] * part[1].step_seconds)
    _, largest = max(parts, key=lambda part: part[1].peak_memory_bytes)
    components: dict[str, float] = {}
    for count, step in parts:
        for name, seconds in step.components.items():
            components[name] = components.get(name, 0.0) + count * seconds
    return Total(
        device=device,
        threads=threads,
        step_seconds=sum(count * step.step_seconds for count, step in parts),
        low=sum(count * step.low for count, step in parts),
        high=sum(count * step.high for count, step in parts),
        one_time_seconds=max(step.one_time_seconds for _, step in parts),
        components=components,
        peak_memory_bytes=largest.peak_memory_bytes,
        available_memory_bytes=largest.available_memory_bytes,
        fits=all(step.fits for _, step in parts),
        bounded_by=longest.bounded_by,
    )
