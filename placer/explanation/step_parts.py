"""What a step is made of: the parts of its time, their names and their order."""

from __future__ import annotations

from collections.abc import Mapping

from placer.explanation.bounds import BOUNDS
from placer.explanation.data import ExplanationData

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
    return {**{name: known.get(name, 0.0) for name in BOUNDS if any(known.values())}, **components}


def shown_parts(parts: Mapping[str, Mapping[str, float]]) -> list[str]:
    """The names of the parts that take time on some device, in order."""
    return list(dict.fromkeys(key for found in parts.values() for key, seconds in found.items() if seconds))
