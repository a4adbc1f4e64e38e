"""What a step is made of: the parts of its time, their names and their order."""

from __future__ import annotations

from collections.abc import Mapping

from placer.explanation.data import ExplanationData
from placer.explanation.rows import DeviceRow
from placer.pricing import COMPUTE_PARTS

#: What the parts of a step are called.
PARTS = {
    "compute": "compute",
    "arithmetic": "arithmetic",
    "memory": "memory traffic",
    "overhead": "starting ops",
    "optimizer": "optimizer",
    "dispatch": "dispatch",
    "launch": "launch",
    "copy": "copies",
    "sync": "sync",
    "loading": "loading",
    "overlap": "at the same time",
}
#: What the parts of a first step are called that a later one does not have.
ONE_TIME = {
    "context": "context", "libraries": "libraries", "first_calls": "first calls", "weights": "moving weights",
    "compiler": "loading the compiler", "compilation": "compilation",
}  # fmt: skip
#: What a step is bounded by, in words.
BOUNDED = {
    "launches": "starting operations takes longer than running them",
    "transfer": "most of the time goes into copying batches and outputs",
    "arithmetic": "most of the time goes into computing",
    "memory": "most of the time goes into reading and writing memory",
    "waits": "most of the time goes into waiting for values from the device",
    "loader": "most of the time goes into waiting for the next batch",
}


def step_parts(explanation: ExplanationData, device: str) -> dict[str, float]:
    """Seconds of a step by part, in the order they are shown; they add up to the step.

    Where it is known what limits the ops, those parts replace ``compute``.
    """
    components = dict(explanation.devices[device].components)
    known = explanation.bounds.get(device) or {}
    if not known:
        return components
    components.pop("compute", None)
    return {**{name: known.get(name, 0.0) for name in COMPUTE_PARTS if any(known.values())}, **components}


def shown_parts(parts: Mapping[str, Mapping[str, float]]) -> list[str]:
    """The names of the parts that take time on some device, in order."""
    return list(dict.fromkeys(key for found in parts.values() for key, seconds in found.items() if seconds))


def first_step(row: DeviceRow) -> float | None:
    """Seconds of the first step, one-time costs included; None where none are known."""
    return row.one_time_seconds + row.step_seconds if row.one_time_seconds else None
