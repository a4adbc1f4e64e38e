"""Where tensors without values cannot follow a step."""

from __future__ import annotations

from placer.errors import TraceError


class Unfollowed(TraceError):
    """Tensors without values could not follow the step; a real run may. Never leaves the tracer."""


class ValueUnknown(Unfollowed):
    """The step reads a tensor's value that only a real run knows."""


def describe_layer(path: str) -> str:
    """The layer as an error message names it."""
    return f"layer {path!r}" if path else "the step"
